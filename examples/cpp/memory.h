// Device memory for the examples: freed where it ends, and an exception in place of an error of HIP's.
#ifndef MEMORY_H
#define MEMORY_H

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

inline void check(hipError_t error, const char* what)
{
    if(error != hipSuccess)
        throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(error));
}

class Memory
{
public:
    explicit Memory(std::size_t bytes) { check(hipMalloc(&data_, bytes == 0 ? 1 : bytes), "hipMalloc"); }
    ~Memory() { static_cast<void>(hipFree(data_)); }
    Memory(const Memory&)            = delete;
    Memory& operator=(const Memory&) = delete;

    void* get() const { return data_; }

private:
    void* data_ = nullptr;
};

#endif // MEMORY_H
