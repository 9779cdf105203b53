// Device memory of the example, freed at the end of the scope.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

class Memory
{
public:
    explicit Memory(std::size_t bytes)
    {
        if(const hipError_t error = hipMalloc(&data_, bytes); error != hipSuccess)
            throw std::runtime_error(std::string("hipMalloc: ") + hipGetErrorString(error));
    }
    ~Memory() { static_cast<void>(hipFree(data_)); }
    Memory(const Memory&)            = delete;
    Memory& operator=(const Memory&) = delete;

    void* get() const { return data_; }

private:
    void* data_ = nullptr;
};
