// A handler with typed buffers: forward attention of fp16 arrays [batch, seqlen, nhead, hdim].
#include "qola_c.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Array = ffi::Buffer<ffi::F16, 4>;
using Lse   = ffi::Buffer<ffi::F32, 3>;

qola_tensor tensor_of(void* data, const ffi::Span<const int64_t>& dims)
{
    const int64_t rows = dims.begin()[1], heads = dims.begin()[2], dim = dims.begin()[3];
    return {data, rows * heads * dim, dim, heads * dim};
}

ffi::Error attention(
    void* stream, float scale, Array q, Array k, Array v, ffi::Result<Array> out, ffi::Result<Lse> lse)
{
    const auto dims_q = q.dimensions(), dims_k = k.dimensions(), dims_v = v.dimensions();
    qola_mha_args args{};
    args.struct_size = sizeof args;
    args.dtype       = QOLA_FP16;
    args.batch       = dims_q.begin()[0];
    args.seqlen_q    = dims_q.begin()[1];
    args.nhead_q     = dims_q.begin()[2];
    args.hdim_q      = dims_q.begin()[3];
    args.seqlen_k    = dims_k.begin()[1];
    args.nhead_k     = dims_k.begin()[2];
    args.hdim_v      = dims_v.begin()[3];
    args.scale       = scale;
    args.q           = tensor_of(q.untyped_data(), dims_q);
    args.k           = tensor_of(k.untyped_data(), dims_k);
    args.v           = tensor_of(v.untyped_data(), dims_v);
    args.o           = tensor_of(out->untyped_data(), out->dimensions());
    args.lse         = {lse->untyped_data(), args.nhead_q * args.seqlen_q, args.seqlen_q, 1};
    if(QOLA_C(mha_fwd)(&args, stream) != QOLA_OK)
        return ffi::Error::Internal(QOLA_C(mha_fwd_last_error)());
    return ffi::Error::Success();
}

} // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    qola_example_attention,
    attention,
    ffi::Ffi::Bind()
        .Ctx<ffi::PlatformStream<void*>>() // a hipStream_t
        .Attr<float>("scale")
        .Arg<Array>()
        .Arg<Array>()
        .Arg<Array>()
        .Ret<Array>()
        .Ret<Lse>());
