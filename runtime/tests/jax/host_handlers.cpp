// The handlers of runtime/jax for XLA's CPU platform, which has no streams: they launch on HIP's default stream.
// They note the buffers of each call, which are memory of the emulated device while its kernels run.
#include "runtime/jax/qola_jax.h"

namespace {

namespace ffi = xla::ffi;
using Words   = ffi::Span<const std::int64_t>;

// One device: calls of several threads run one after the other.
std::mutex mutex;
std::vector<qola_jax::Buffer> noted;

qola_jax::Entry& entry_of(int direction)
{
    static auto* const entries = new qola_jax::Entry[2];
    return entries[direction];
}

template <int direction>
ffi::Error call(Words problem, Words places, ffi::RemainingArgs args, ffi::RemainingRets rets)
{
    const auto buffers = qola_jax::buffers_of(args, rets);
    if(buffers.has_error())
        return buffers.error();
    const std::scoped_lock lock(mutex);
    noted = *buffers;
    ffi::Error error = qola_jax::launch(entry_of(direction), nullptr, problem, places, *buffers);
    noted.clear();
    return error;
}

auto binding()
{
    return ffi::Ffi::Bind().Attr<Words>("problem").Attr<Words>("places").RemainingArgs().RemainingRets();
}

} // namespace

#define API __attribute__((visibility("default")))
extern "C" {

API XLA_FFI_Error* qola_jax_mha_fwd(XLA_FFI_CallFrame* frame);
API XLA_FFI_Error* qola_jax_mha_bwd(XLA_FFI_CallFrame* frame);

API void qola_jax_set_library(int direction, const char* library, const char* function)
{
    entry_of(direction).set(library, function);
}

/// Returns the number of buffers of the running call; writes address and size of as many as there is room for.
API std::size_t noted_buffers(std::uint64_t* pairs, std::size_t room)
{
    for(std::size_t at = 0; at < noted.size() && at < room; ++at)
    {
        pairs[2 * at]     = reinterpret_cast<std::uintptr_t>(noted[at].data);
        pairs[2 * at + 1] = noted[at].bytes;
    }
    return noted.size();
}
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(qola_jax_mha_fwd, call<0>, binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(qola_jax_mha_bwd, call<1>, binding());
