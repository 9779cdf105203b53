// Finds, loads and launches the kernels of the table.
#pragma once

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

/// An error that a function of the library returns as a status.
class Refusal : public std::runtime_error
{
    public:
    Refusal(int status, const std::string& what) : std::runtime_error(what), status(status) {}
    const int status;
};

using Choices = std::map<std::string, std::string>;
using Grid    = std::array<std::uint32_t, 3>;

/// Returns a value by name; null if the caller gives none.
using Values = std::function<std::optional<qola_triton_argument>(const std::string& name)>;

/// Returns the first instance with these choices for the current device. Throws Refusal.
const Instance& find(const std::string& kernel, const Choices& choices);

/// Returns the instance of a name, null if there is none.
const Instance* named(const std::string& name);

/// Fills the caller's structure with an instance. Throws Refusal if its size differs.
void tell(const Instance& instance, qola_triton_found* found);

/// Returns the value of an instance's constant. Throws Refusal.
std::int64_t constant(const Instance& instance, const std::string& name);

/// Returns the memory image of a launch's arguments. Throws Refusal.
std::string packed(const Instance& instance, const Values& values);

/// A launch whose kernel is loaded and whose arguments are valid.
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

/// Runs a function of the library and converts exceptions to a status and the text of last_error.
int guarded(const std::function<void()>& work) noexcept;

/// Returns the error of the thread's last call.
const char* last_error() noexcept;

/// Launches all kernels of a problem, or none.
int attend(bool backward, const qola_triton_attention* attention, void* stream) noexcept;

/// Finds the main kernel of a problem. All kernels must exist and support it.
int find_attention(bool backward, const qola_triton_attention* attention, qola_triton_found* found) noexcept;

} // namespace qola_triton
