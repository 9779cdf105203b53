// What a kernel library gives the lazy library that loads it.
//
// A kernel library is one kernel instance's unchanged source, with one of the entry sources that
// qola/plan/stubs.py writes: it names the host functions that the kernel's source defines.
#ifndef QOLA_KERNEL_H
#define QOLA_KERNEL_H

/// Raised with every change of what is below: part of every kernel's key, so that a library never
/// loads a kernel that was made for another.
#define QOLA_KERNEL_ABI 1

extern "C" {

/// A host function of a kernel instance, whatever its real signature is: both sides have it from the
/// same declaration in Composable Kernel's headers.
typedef void (*qola_kernel_function)();

/// What a library asks of a kernel library, by the symbol `qola_kernel`.
struct qola_kernel_table
{
    unsigned abi;   ///< QOLA_KERNEL_ABI
    unsigned count; ///< number of functions
    const qola_kernel_function* functions;
};

} // extern "C"

// An entry source is QOLA_KERNEL_BEGIN, a QOLA_KERNEL_FUNCTION for each function in the order in
// which the stubs count them, QOLA_KERNEL_END. Device code has no part in it.
#if defined(__HIP_DEVICE_COMPILE__)
#define QOLA_KERNEL_BEGIN
#define QOLA_KERNEL_FUNCTION(...)
#define QOLA_KERNEL_END
#else
#define QOLA_KERNEL_BEGIN static const qola_kernel_function qola_kernel_functions[] = {
#define QOLA_KERNEL_FUNCTION(...) reinterpret_cast<qola_kernel_function>(&__VA_ARGS__),
#define QOLA_KERNEL_END                                                                  \
    }                                                                                    \
    ;                                                                                    \
    extern "C" __attribute__((visibility("default"))) const qola_kernel_table qola_kernel; \
    const qola_kernel_table qola_kernel = {                                              \
        QOLA_KERNEL_ABI,                                                                 \
        sizeof(qola_kernel_functions) / sizeof(qola_kernel_functions[0]),                \
        qola_kernel_functions};
#endif

#endif // QOLA_KERNEL_H
