// What every public header of a qola library shares.
#pragma once

#include <hip/hip_runtime.h>

// Generated per manifest: QOLA_NAMESPACE, macros that AITER's headers ask for, and which entry
// points the libraries have.
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
// list; an entry point has to pass both.
#define QOLA_API __attribute__((visibility("default")))

QOLA_NS_BEGIN

/// What a negative answer of an entry point means. Reasons go to standard error,
/// except for no_kernel, which is an answer like any other.
namespace status {
/// No kernel of this library serves the problem.
constexpr float no_kernel = -1;
/// The library has no code for the arch of the current device.
constexpr float no_arch = -2;
/// A call of the HIP runtime failed, or Composable Kernel refused the arguments.
constexpr float failed = -3;
/// The kernel that serves the problem is not at hand: it is neither cached, nor in a pack, nor could
/// it be compiled. Lazy libraries alone; of a problem that several kernels serve, those that earlier
/// calls launched may have run.
constexpr float unavailable = -4;
} // namespace status

QOLA_NS_END
