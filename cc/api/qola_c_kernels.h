// The kernels of a library by name; not installed. Written beside the entry points and not into
// them, so that a kernel more compiles a table and no templates.
#pragma once

#include <cstddef>
#include <string_view>

namespace qola_c_entry {

/// A kernel instance or an assembly kernel. Its archs stand with commas between them.
///
/// Deterministic backward kernels have an accumulator for each so many rows of K: `split`, for head
/// dimensions up to `hdim`.
struct Kernel
{
    const char* name;
    std::string_view archs;
    int hdim  = 0;
    int split = 0;
};

/// The kernels of an entry point.
struct Kernels
{
    const Kernel* first;
    std::size_t count;

    const Kernel* begin() const { return first; }
    const Kernel* end() const { return first + count; }
};

} // namespace qola_c_entry
