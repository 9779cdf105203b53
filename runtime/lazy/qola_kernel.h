// The interface between a kernel library and the lazy library that loads it.
//
// A kernel library consists of the unchanged source of one kernel instance and an entry source, written
// by qola/plan/stubs.py, that names the host functions of the kernel's source.
#ifndef QOLA_KERNEL_H
#define QOLA_KERNEL_H

/// Incremented with every change of this interface. It is part of every kernel's key, so a library never
/// loads a kernel for another version.
#define QOLA_KERNEL_ABI 1

extern "C" {

/// A host function of a kernel instance, of any signature: both sides use the declaration in Composable
/// Kernel's headers.
typedef void (*qola_kernel_function)();

/// The symbol `qola_kernel` of a kernel library.
struct qola_kernel_table
{
    unsigned abi;   ///< QOLA_KERNEL_ABI
    unsigned count; ///< number of functions
    const qola_kernel_function* functions;
};

} // extern "C"

// An entry source is QOLA_KERNEL_BEGIN, a QOLA_KERNEL_FUNCTION per function in the order of the stubs,
// and QOLA_KERNEL_END. It is host code only.
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
