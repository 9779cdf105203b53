// Finds, loads and launches the kernels of the table.
#ifndef QOLA_TRITON_LIBRARY_H
#define QOLA_TRITON_LIBRARY_H

#include "qola_triton.h"
#include "table.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

namespace qola_triton {

/// What a function of the library ends with.
class Refusal : public std::runtime_error
{
    public:
    Refusal(int status, const std::string& what) : std::runtime_error(what), status(status) {}
    const int status;
};

using Choices = std::map<std::string, std::string>;
using Grid    = std::array<std::uint32_t, 3>;

/// A value; null where nobody gives one.
using Values = std::function<std::optional<qola_triton_argument>(const std::string& name)>;

/// The first instance with these choices for the current device. Throws Refusal.
const Instance& find(const std::string& kernel, const Choices& choices);

/// The instance of a name, null where there is none.
const Instance* named(const std::string& name);

/// Tells a caller of an instance. Throws Refusal where its structure has another size.
void tell(const Instance& instance, qola_triton_found* found);

/// The number that an instance has for a constant. Throws Refusal.
std::int64_t constant(const Instance& instance, const std::string& name);

/// The arguments of a launch as they lie in memory. Throws Refusal.
std::string packed(const Instance& instance, const Values& values);

/// A launch that nothing keeps from being made: the kernel is loaded.
struct Launch
{
    void* function;
    const Instance* instance;
    std::string arguments;
    Grid grid;
};

/// Loads a kernel. Throws Refusal.
Launch prepare(const Instance& instance, const Values& values, const Grid& grid);

/// Throws Refusal.
void run(Launch launch, void* stream);

/// Does the work of a function of the library: status, and what is wrong for last_error.
int guarded(const std::function<void()>& work) noexcept;

/// What was wrong with the thread's last call.
const char* last_error() noexcept;

int attention_forward(const qola_triton_attention* attention, void* stream) noexcept;
int attention_backward(const qola_triton_attention* attention, void* stream) noexcept;
int attention_forward_find(const qola_triton_attention* attention, qola_triton_found* found) noexcept;
int attention_backward_find(const qola_triton_attention* attention, qola_triton_found* found) noexcept;

} // namespace qola_triton

#endif // QOLA_TRITON_LIBRARY_H
