// Definitions for all public headers of a qola library.
#pragma once

#include <hip/hip_runtime.h>

// Generated per manifest: QOLA_NAMESPACE, macros for AITER's headers, and the entry points of the
// libraries.
#include "qola_config.h"

// The macros are those of ROCm/QoLA: QOLA_NS(mha_fwd) is the function in the manifest's namespace.
#ifdef QOLA_NAMESPACE
#define QOLA_NS_BEGIN   \
    namespace qola {    \
    namespace QOLA_NAMESPACE {
#define QOLA_NS_END \
    }               \
    }
#define QOLA_NS(sym) ::qola::QOLA_NAMESPACE::sym
#else
#define QOLA_NS_BEGIN namespace qola {
#define QOLA_NS_END }
#define QOLA_NS(sym) ::qola::sym
#endif

// The library is compiled with hidden visibility and linked with an export
// list; an entry point must pass both.
#define QOLA_API __attribute__((visibility("default")))

QOLA_NS_BEGIN

/// Negative results of an entry point. Reasons are printed to standard error, except for no_kernel,
/// which is a normal result.
namespace status {
/// No kernel of this library serves the problem.
constexpr float no_kernel = -1;
/// The library has no code for the arch of the current device.
constexpr float no_arch = -2;
/// A call of the HIP runtime failed, or the arguments were refused: by Composable Kernel, or for a stride
/// beyond the offsets of kernels. Standard error has the reason.
constexpr float failed = -3;
/// Only lazy libraries: the kernel of the problem is neither in a cache nor in a pack, and could not
/// be compiled. Only split libraries: the pack of the device's arch is missing or refused. If the
/// problem needs several kernels, some may have been launched.
constexpr float unavailable = -4;
} // namespace status

QOLA_NS_END
