// Loads kernel instances at their first call. Private to a lazy library.
//
// Stubs (qola/plan/stubs.py) define the functions that Composable Kernel's dispatch calls, and forward to
// functions that they request here. The library's `module`, a table that qola/lazy/index.py writes, lists
// the kernel instances.
#pragma once

#include "qola_kernel.h"

#include <atomic>
#include <cstddef>

namespace qola_lazy {

/// A kernel instance for one arch: a row of the library's table.
struct Kernel
{
    const char* name; ///< the kernel instance
    const char* arch; ///< such as "gfx950"
    const char* code; ///< digest of everything that determines its code, except the compiler: 64 hex digits
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

/// The table of this library.
extern const Module module;

/// The functions of each row, null until it is loaded.
extern std::atomic<const qola_kernel_function*> loaded[];

/// Finds or compiles a kernel instance, loads it, and returns its functions.
///
/// The `count` rows from `row` on are the same kernel instance for different archs; that of the current
/// device is loaded. The other kernels that the thread's call launches (qola_call.h) are obtained
/// concurrently. Any thread may call it. Throws qola_entry::StatusError, QOLA_STATUS_UNAVAILABLE, if one
/// of them is unavailable, and reports that once on standard error.
const qola_kernel_function* resolve(unsigned row, unsigned count);

/// Does the same, without a call if the row is loaded.
inline const qola_kernel_function* functions(unsigned row, unsigned count)
{
    if(count == 1)
        if(const qola_kernel_function* found = loaded[row].load(std::memory_order_acquire))
            return found;
    return resolve(row, count);
}

/// Does the same for a launch. While a call is recorded it only notes the kernel and returns null. Not
/// inline, because a library has thousands of stubs.
const qola_kernel_function* launching(unsigned row, unsigned count);

} // namespace qola_lazy
