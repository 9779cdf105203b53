// The FFI handlers of qola_<name>.jax, and the function by which it names the libraries of a wheel.
#include "qola_jax.h"

#define QOLA_JAX_API extern "C" __attribute__((visibility("default")))

QOLA_JAX_API XLA_FFI_Error* qola_jax_mha_fwd(XLA_FFI_CallFrame* frame);
QOLA_JAX_API XLA_FFI_Error* qola_jax_mha_bwd(XLA_FFI_CallFrame* frame);

namespace {

namespace ffi = xla::ffi;
using Words   = ffi::Span<const std::int64_t>;

enum Direction
{
    FORWARD  = 0,
    BACKWARD = 1
};

qola_jax::Entry& entry_of(int direction)
{
    // Not destroyed: another thread may still launch kernels when the process ends.
    static auto* const entries = new qola_jax::Entry[2];
    return entries[direction];
}

template <Direction direction>
ffi::Error call(void* stream, Words problem, Words places, ffi::RemainingArgs args, ffi::RemainingRets rets)
{
    const auto buffers = qola_jax::buffers_of(args, rets);
    if(buffers.has_error())
        return buffers.error();
    return qola_jax::launch(entry_of(direction), stream, problem, places, *buffers);
}

auto binding()
{
    return ffi::Ffi::Bind()
        .Ctx<ffi::PlatformStream<void*>>()
        .Attr<Words>("problem")
        .Attr<Words>("places")
        .RemainingArgs()
        .RemainingRets();
}

} // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(qola_jax_mha_fwd, call<FORWARD>, binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(qola_jax_mha_bwd, call<BACKWARD>, binding());

/// Sets the library of mha_fwd (0) or mha_bwd (1), and the name of its C function.
QOLA_JAX_API void qola_jax_set_library(int direction, const char* library, const char* function)
{
    entry_of(direction).set(library, function);
}
