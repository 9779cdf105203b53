// Kernel instances that are loaded when they are first called; private to a lazy library.
//
// The stubs (qola/plan/stubs.py) define the functions that Composable Kernel's dispatch calls, and
// ask here for the ones to call in their place. What can be asked for is the library's `module`, a
// table that qola/lazy/index.py writes.
#ifndef QOLA_LAZY_H
#define QOLA_LAZY_H

#include "qola_kernel.h"

#include <atomic>
#include <cstddef>

namespace qola_lazy {

/// A kernel instance for one arch: a row of the library's table.
struct Kernel
{
    const char* name; ///< the kernel instance
    const char* arch; ///< such as "gfx950"
    const char* code; ///< digest of all that decides its code but the compiler: 64 hex digits
};

/// The kernel instances of a lazy library.
struct Module
{
    const char* name;     ///< the module, such as "libmha_fwd"
    const char* root;     ///< directory of its sources, relative to the library's directory
    const char* identity; ///< the compiler that the library's own kernels are compiled with
    const char* index;    ///< digest of the file kernels.index below `root`: 64 hex digits
    const Kernel* kernels;
    std::size_t count;
};

/// Of the library; each has its own.
extern const Module module;

/// By row: the functions of what is loaded, else null.
extern std::atomic<const qola_kernel_function*> loaded[];

/// Returns the functions of a kernel instance, after finding, or compiling, and loading it.
///
/// Of `count` rows from `row` on, which are the same kernel instance for different archs, it is that
/// of the current device. With it come the others that the thread's call launches (qola_call.h), side
/// by side. Any thread may call it. Throws qola_entry::StatusError: QOLA_STATUS_UNAVAILABLE where one
/// of them cannot be had, said on standard error once.
const qola_kernel_function* resolve(unsigned row, unsigned count);

/// The same, without a call where it is loaded.
inline const qola_kernel_function* functions(unsigned row, unsigned count)
{
    if(count == 1)
        if(const qola_kernel_function* found = loaded[row].load(std::memory_order_acquire))
            return found;
    return resolve(row, count);
}

/// The same of a kernel that is to be launched; null while the call is recorded: it is only noted. Not
/// inline, because a library has thousands of stubs.
const qola_kernel_function* launching(unsigned row, unsigned count);

} // namespace qola_lazy

#endif // QOLA_LAZY_H
