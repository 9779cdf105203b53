// The names of a library's kernels; not installed. They are a source of their own, so that an additional
// kernel recompiles a table and not the templates of the entry points.
#pragma once

#include <cstddef>
#include <string_view>

namespace qola_c_entry {

/// A kernel instance or an assembly kernel, with its archs separated by commas.
///
/// Deterministic backward kernels have an accumulator for every `split` rows of K, for head dimensions up to
/// `hdim`.
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
