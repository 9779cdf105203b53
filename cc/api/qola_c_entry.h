// The C functions of a library (qola_c.h) over its C++ ones; not installed.
//
// What AITER's arguments have differs from tree to tree. Here stand the members of every tree that is
// known, and the compiler leaves out what the one at hand does not have: a field of a C caller that none of
// them took is refused by its name.
#pragma once

#include "qola_c.h"
#include "qola_call.h"
#include "qola_entry.h"

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace qola_c_entry {

static_assert(QOLA_NO_KERNEL == static_cast<int>(QOLA_STATUS_NO_KERNEL) &&
              QOLA_NO_ARCH == static_cast<int>(QOLA_STATUS_NO_ARCH) &&
              QOLA_FAILED == static_cast<int>(QOLA_STATUS_FAILED) &&
              QOLA_UNAVAILABLE == static_cast<int>(QOLA_STATUS_UNAVAILABLE));
/// What a caller of the first header gives, at least.
inline constexpr std::size_t FIRST_ARGS  = 872;
inline constexpr std::size_t FIRST_FOUND = 208;
static_assert(sizeof(qola_mha_args) >= FIRST_ARGS && sizeof(qola_found) >= FIRST_FOUND);

/// A kernel instance or an assembly kernel. Its archs stand with commas between them.
///
/// Deterministic backward kernels have an accumulator for each so many rows of K: `split`, for head
/// dimensions up to `hdim`.
struct Kernel
{
    const char* name;
    std::string_view archs;
    int hdim  = 0;
    int split = 0;
};

/// Ends a call with a status and what is wrong.
class Refused : public std::runtime_error
{
    public:
    Refused(int status, const std::string& what) : std::runtime_error(what), status(status) {}
    const int status;
};

[[noreturn]] inline void invalid(const std::string& what) { throw Refused(QOLA_INVALID, what); }

/// What was wrong with this thread's last call that failed. No std::string: nothing has to end with a
/// thread.
inline thread_local char last_error[512] = "";

inline int fail(int status, const char* what)
{
    std::snprintf(last_error, sizeof last_error, "%s", what);
    return status;
}

inline const char* status_string(int status)
{
    switch(status)
    {
    case QOLA_OK: return "success";
    case QOLA_NO_KERNEL: return "no kernel of the library serves the problem";
    case QOLA_NO_ARCH: return "the library has no code for the arch of the current device";
    case QOLA_FAILED: return "a call of HIP failed, or the arguments were refused; standard error says which";
    case QOLA_UNAVAILABLE: return "the kernel that serves the problem is not at hand; standard error says why";
    case QOLA_UNSUPPORTED: return "a field is set that this library does not have";
    case QOLA_INVALID: return "a field is missing or contradicts another one";
    default: return "unknown status";
    }
}

#define QOLA_C_FIELDS(FIELD)                                                                        \
    FIELD(dtype) FIELD(mask) FIELD(bias_type) FIELD(group) FIELD(kernels) FIELD(rounding)           \
    FIELD(deterministic) FIELD(batch) FIELD(nhead_q) FIELD(nhead_k) FIELD(seqlen_q) FIELD(seqlen_k) \
    FIELD(max_seqlen_q) FIELD(max_seqlen_k) FIELD(hdim_q) FIELD(hdim_v) FIELD(window_left)          \
    FIELD(window_right) FIELD(sink_size) FIELD(min_seqlen_q) FIELD(scale) FIELD(logits_soft_cap)    \
    FIELD(dropout) FIELD(scale_p) FIELD(scale_o) FIELD(quantization) FIELD(q) FIELD(k) FIELD(v)     \
    FIELD(o) FIELD(lse) FIELD(bias) FIELD(randval) FIELD(d_o) FIELD(dq) FIELD(dk) FIELD(dv)         \
    FIELD(d_bias) FIELD(drop_seed) FIELD(drop_offset) FIELD(drop_seed_ptr) FIELD(drop_offset_ptr)   \
    FIELD(seqstart_q) FIELD(seqstart_k) FIELD(seqlens_q) FIELD(seqlens_k) FIELD(cu_seqlens_q)       \
    FIELD(cu_seqlens_k) FIELD(sink) FIELD(d_sink) FIELD(workspace) FIELD(workspace_size)            \
    FIELD(num_splits) FIELD(block_table) FIELD(block_table_stride) FIELD(page_size) FIELD(gappy)    \
    FIELD(atomic16) FIELD(cache_batch_idx) FIELD(num_pages) FIELD(kv_indptr) FIELD(kv_page_indices) \
    FIELD(kv_last_page_lens) FIELD(kv_layout) FIELD(kv_lookup) FIELD(q_descale) FIELD(k_descale)    \
    FIELD(v_descale) FIELD(block_scale_seqstart_q) FIELD(block_scale_seqstart_k)                    \
    FIELD(block_scale_size_q) FIELD(block_scale_size_k)

#define QOLA_C_SIZE(field) +sizeof(qola_mha_args::field)
// Each byte is some field's, or one that nobody refuses would be passed over.
static_assert(sizeof(qola_mha_args) ==
              sizeof(qola_mha_args::struct_size) QOLA_C_FIELDS(QOLA_C_SIZE));
#undef QOLA_C_SIZE

/// A caller's fields. Each is taken by what passes it on; at the end none that is set may be left.
class Fields
{
    public:
    explicit Fields(const qola_mha_args* given)
    {
        if(given == nullptr)
            invalid("args: null");
        const std::size_t size = given->struct_size;
        if(size < FIRST_ARGS)
            invalid("struct_size: " + std::to_string(size) + ", expected sizeof(qola_mha_args)");
        const auto* bytes = reinterpret_cast<const unsigned char*>(given);
        for(std::size_t at = sizeof values; at < size; ++at)
            if(bytes[at] != 0)
                throw Refused(QOLA_UNSUPPORTED,
                              "the field at byte " + std::to_string(at) + " of qola_mha_args: set, " +
                                  "and unknown to this library, which is older than its caller");
        std::memcpy(&values, bytes, std::min(size, sizeof values));
        left = values;
        std::memset(&left.struct_size, 0, sizeof left.struct_size);
    }

    template <class T>
    T take(T qola_mha_args::* field)
    {
        std::memset(&(left.*field), 0, sizeof(T));
        return values.*field;
    }

    /// Throws Refused where a field is set that nobody took.
    void check_left(const char* entry) const
    {
        if(!is_set(&left, sizeof left))
            return;
#define QOLA_C_LEFT(field)                             \
    if(is_set(&left.field, sizeof left.field))         \
        throw Refused(QOLA_UNSUPPORTED,            \
                      std::string(#field ": set, and ") + entry + " of this library has no such thing");
        QOLA_C_FIELDS(QOLA_C_LEFT)
#undef QOLA_C_LEFT
    }

    qola_mha_args values{};

    private:
    static bool is_set(const void* field, std::size_t size)
    {
        const auto* bytes = static_cast<const unsigned char*>(field);
        return std::any_of(bytes, bytes + size, [](unsigned char byte) { return byte != 0; });
    }

    qola_mha_args left{};
};

/// Hands out pieces of the caller's workspace; without one, tells how large it has to be.
class Workspace
{
    public:
    Workspace() = default;
    Workspace(void* memory, std::uint64_t size, hipStream_t stream)
        : base_(reinterpret_cast<std::uintptr_t>(memory)), size_(size), stream_(stream), real_(true)
    {
    }

    void* operator()(std::uint64_t bytes, bool zeroed)
    {
        // Address and size of each piece as hipMalloc has them.
        const std::uintptr_t start = (base_ + used_ + 255) / 256 * 256;
        used_                      = start - base_ + bytes;
        void* piece                = reinterpret_cast<void*>(start);
        if(!real_)
            return piece;
        if(base_ == 0 || used_ > size_)
            refuse(QOLA_INVALID,
                   (base_ == 0 ? "workspace: null" : "workspace_size: " + std::to_string(size_)) +
                       ", and the problem needs " + std::to_string(needed()) + " bytes or more");
        if(zeroed)
            if(const hipError_t error = hipMemsetAsync(piece, 0, bytes, stream_); error != hipSuccess)
            {
                static_cast<void>(hipGetLastError());
                refuse(QOLA_FAILED, std::string("hipMemsetAsync: ") + hipGetErrorString(error));
            }
        return piece;
    }

    /// Throws what the call before could not have. AITER, which may have asked, makes a status of it.
    void check() const
    {
        if(status_ != QOLA_OK)
            throw Refused(status_, what_);
    }

    /// Bytes that were handed out, wherever the caller's begins.
    std::uint64_t needed() const { return used_ == 0 ? 0 : used_ + (real_ ? 255 : 0); }

    bool real() const { return real_; }
    hipStream_t stream() const { return stream_; }

    private:
    [[noreturn]] void refuse(int status, const std::string& what)
    {
        // No exception_ptr: older systems lack what an archive would ask of them for it.
        status_ = status;
        what_   = what;
        throw Refused(status, what);
    }

    // Of none: an address that is not null, one byte behind a whole piece, so that the size suits each.
    std::uintptr_t base_  = 1;
    std::uint64_t size_   = 0;
    std::uint64_t used_   = 0;
    hipStream_t stream_   = nullptr;
    bool real_            = false;
    int status_           = QOLA_OK;
    std::string what_;
};

/// A number as whatever type a parameter or member has: masks are an enumeration or int.
struct Number
{
    std::int64_t value = 0;

    template <class T>
        requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
    operator T() const
    {
        return static_cast<T>(value);
    }
};

/// What AITER's functions take beside arguments and stream, by the names of their parameters.
struct Parameters
{
    std::string q_dtype_str;
    Number is_group_mode, mask_type, bias_type, has_lse, has_dbias, has_sink, is_store_randval;
    Number deterministic, use_ext_asm, is_v3_atomic_fp32, how_v3_bf16_cvt, qscale_type;
    const void* seqstart_q_padding_ptr = nullptr;
    const void* seqstart_k_padding_ptr = nullptr;
    const void* seqlen_q_padded        = nullptr;
    const void* seqlen_k_padded        = nullptr;
    Number is_v3_api_check;
};

template <class T, class V>
void set(T& to, V value, const char* name)
{
    if constexpr(std::is_integral_v<T> && !std::is_same_v<T, bool> && std::is_integral_v<V>)
        if(static_cast<V>(static_cast<T>(value)) != value || (value < 0) != (static_cast<T>(value) < 0))
            invalid(std::string(name) + ": " + std::to_string(value) + " is beyond what AITER takes");
    to = static_cast<T>(value);
}

#define QOLA_C_SET(member, value, name)    \
    if constexpr(requires { args.member; }) \
        set(args.member, value, name);
#define QOLA_C_TAKE(member, field)         \
    if constexpr(requires { args.member; }) \
        set(args.member, fields.take(&qola_mha_args::field), #field);
/// A tensor, by the members that are named after it; a stride that there is no member for is 0 or `natural`.
#define QOLA_C_STRIDE(member, value, natural, name)                                    \
    if constexpr(requires { args.member; })                                            \
        set(args.member, value, name);                                                 \
    else if((value) != 0 && (value) != (natural))                                      \
        throw Refused(QOLA_UNSUPPORTED, name ": " + std::to_string(value) + ", and AITER has another one");
#define QOLA_C_TENSOR(aiter, field)                                                    \
    if constexpr(requires { args.aiter##_ptr; })                                       \
    {                                                                                  \
        const qola_tensor tensor = fields.take(&qola_mha_args::field);                 \
        args.aiter##_ptr         = tensor.data;                                        \
        QOLA_C_STRIDE(stride_##aiter, tensor.stride_row, 1, #field ".stride_row")      \
        QOLA_C_STRIDE(nhead_stride_##aiter, tensor.stride_head, 0, #field ".stride_head") \
        QOLA_C_STRIDE(batch_stride_##aiter, tensor.stride_batch, 0, #field ".stride_batch") \
    }

inline const char* dtype_of(int dtype)
{
    switch(dtype)
    {
    case QOLA_FP16: return "fp16";
    case QOLA_BF16: return "bf16";
    case QOLA_FP32: return "fp32";
    case QOLA_FP8: return "fp8";
    case QOLA_BF8: return "bf8";
    case QOLA_FP8_FP16: return "fp8fp16";
    case QOLA_FP8_BF16: return "fp8bf16";
    case QOLA_FP8_FP32: return "fp8fp32";
    default: invalid("dtype: " + std::to_string(dtype) + ", expected a qola_dtype");
    }
}

/// AITER's numbers of a mask: its kind, and the window.
struct Mask
{
    int kind;
    std::int64_t left, right;
};

inline Mask mask_of(Fields& fields)
{
    const int mask   = fields.take(&qola_mha_args::mask);
    const auto left  = fields.take(&qola_mha_args::window_left);
    const auto right = fields.take(&qola_mha_args::window_right);
    // Also what AITER itself has there: -1, and behind a causal mask 0.
    const bool unset = (left == 0 || left == -1) && (right == 0 || right == -1);
    switch(mask)
    {
    case QOLA_MASK_NONE:
    case QOLA_MASK_CAUSAL_TOP_LEFT:
    case QOLA_MASK_CAUSAL_BOTTOM_RIGHT:
        if(!unset)
            invalid("window_left, window_right: set, and the mask is not a window");
        return {mask, -1, mask == QOLA_MASK_NONE ? -1 : 0};
    case QOLA_MASK_WINDOW_BOTTOM_RIGHT:
    case QOLA_MASK_WINDOW_TOP_LEFT:
        if(left < -1 || right < -1)
            invalid("window_left, window_right: below -1");
        // As causal masks with limits: AITER's own kind for windows begins in the bottom right for
        // Composable Kernel, in the top left for assembly kernels.
        return {mask == QOLA_MASK_WINDOW_TOP_LEFT ? 1 : 2, left, right};
    default: invalid("mask: " + std::to_string(mask) + ", expected a qola_mask");
    }
}

inline void at_least_1(std::int64_t value, const char* name)
{
    if(value < 1)
        invalid(std::string(name) + ": " + std::to_string(value) + ", expected 1 or more");
}

/// What is wrong with a problem whatever serves it. `launched`: it is not only asked about.
inline void check(const qola_mha_args& args, bool backward, bool launched)
{
    at_least_1(args.batch, "batch");
    at_least_1(args.nhead_q, "nhead_q");
    at_least_1(args.nhead_k, "nhead_k");
    at_least_1(args.seqlen_q, "seqlen_q");
    at_least_1(args.seqlen_k, "seqlen_k");
    at_least_1(args.hdim_q, "hdim_q");
    at_least_1(args.hdim_v, "hdim_v");
    if(args.nhead_q % args.nhead_k != 0)
        invalid("nhead_k: " + std::to_string(args.nhead_k) + " does not divide nhead_q");
    if(args.group != 0 && args.group != 1)
        invalid("group: " + std::to_string(args.group) + ", expected 0 or 1");
    if(args.group == 1)
        at_least_1(args.max_seqlen_q, "max_seqlen_q, with group");
    if(args.group == 1 && backward)
        at_least_1(args.max_seqlen_k, "max_seqlen_k, with group");
    if(args.group == 1 && launched && args.seqstart_q == nullptr)
        invalid("seqstart_q: null, with group");
    if(!(args.dropout >= 0.f && args.dropout < 1.f))
        invalid("dropout: expected a number of at least 0, and below 1");
    if((args.drop_seed_ptr == nullptr) != (args.drop_offset_ptr == nullptr))
        invalid("drop_seed_ptr, drop_offset_ptr: one of them alone");
    if(args.drop_seed_ptr != nullptr && (args.drop_seed != 0 || args.drop_offset != 0))
        invalid("drop_seed, drop_offset: set beside drop_seed_ptr");
    if(args.bias_type < QOLA_BIAS_NONE || args.bias_type > QOLA_BIAS_ALIBI)
        invalid("bias_type: " + std::to_string(args.bias_type) + ", expected a qola_bias");
    if(args.bias_type == QOLA_BIAS_NONE && (args.bias.data != nullptr || args.d_bias.data != nullptr))
        invalid("bias: set, and bias_type is QOLA_BIAS_NONE");
    if(args.bias_type != QOLA_BIAS_NONE && launched && args.bias.data == nullptr)
        invalid("bias: null, and bias_type is set");
    if(args.kernels != QOLA_KERNELS_ANY && args.kernels != QOLA_KERNELS_CK)
        invalid("kernels: " + std::to_string(args.kernels) + ", expected a qola_kernels");
    if(args.rounding < QOLA_ROUND_DEFAULT || args.rounding > QOLA_ROUND_TO_ZERO)
        invalid("rounding: " + std::to_string(args.rounding) + ", expected a qola_rounding");
    const auto needs = [&](const qola_tensor& tensor, const char* name) {
        if(launched && tensor.data == nullptr)
            invalid(std::string(name) + ": null");
    };
    needs(args.q, "q");
    needs(args.k, "k");
    needs(args.v, "v");
    needs(args.o, "o");
    if(backward)
    {
        needs(args.lse, "lse");
        needs(args.d_o, "d_o");
        needs(args.dq, "dq");
        needs(args.dk, "dk");
        needs(args.dv, "dv");
    }
}

/// Whether AITER's function has a parameter of that name.
template <class Entry>
constexpr bool takes(std::string_view name)
{
    return std::find(std::begin(Entry::parameters), std::end(Entry::parameters), name) != std::end(Entry::parameters);
}

/// The fewest rows of K for which a deterministic kernel has an accumulator: none has fewer than 16.
template <class Entry>
std::int64_t rows_of_split(std::int64_t hdim)
{
    int fewest = 0;
    for(const Kernel& kernel : Entry::kernels)
        if(kernel.split != 0 && kernel.hdim >= hdim && (fewest == 0 || kernel.split < fewest))
            fewest = kernel.split;
    return fewest == 0 ? 16 : fewest;
}

/// Sets AITER's arguments and parameters.
template <class Entry, class Args>
void fill(Args& args, Parameters& more, Fields& fields, Workspace& workspace)
{
    using A                   = qola_mha_args;
    const qola_mha_args given = fields.values;
    // Only the backward has it, and only splits have those.
    constexpr bool backward = requires { args.do_ptr; };
    constexpr bool splits   = requires { args.o_acc_ptr; };
    check(given, backward, workspace.real());
    fields.take(&A::workspace);
    fields.take(&A::workspace_size);

    more.q_dtype_str   = dtype_of(fields.take(&A::dtype));
    more.is_group_mode = {fields.take(&A::group)};
    more.bias_type     = {fields.take(&A::bias_type)};
    more.has_lse       = {given.lse.data != nullptr};
    more.has_dbias     = {given.d_bias.data != nullptr};
    more.has_sink      = {given.sink != nullptr || given.sink_size != 0};
    QOLA_C_SET(data_type, more.q_dtype_str, "dtype")
    QOLA_C_SET(is_group_mode, given.group != 0, "group")
    QOLA_C_SET(bias_type, given.bias_type, "bias_type")
    QOLA_C_SET(has_lse, given.lse.data != nullptr, "lse")
    QOLA_C_SET(has_dbias, given.d_bias.data != nullptr, "d_bias")
    QOLA_C_SET(has_sink, more.has_sink.value != 0, "sink")
    QOLA_C_SET(has_dropout, given.dropout > 0.f, "dropout")

    const Mask mask = mask_of(fields);
    more.mask_type  = {mask.kind};
    QOLA_C_SET(mask_type, mask.kind, "mask")
    QOLA_C_SET(window_size_left, mask.left, "window_left")
    QOLA_C_SET(window_size_right, mask.right, "window_right")

    // The dispatch of splits and of pages knows no assembly kernels.
    bool assembly = fields.take(&A::kernels) == QOLA_KERNELS_ANY;
    // These read no lengths without padding; those of the wheels no sums of them, either.
    assembly = assembly && given.seqlens_q == nullptr && given.seqlens_k == nullptr;
    if constexpr(!requires { args.use_asm_v3; })
        assembly = assembly && given.cu_seqlens_q == nullptr && given.cu_seqlens_k == nullptr;
    more.use_ext_asm = {assembly};
    QOLA_C_SET(use_asm_v3, assembly, "kernels")
    const int rounding   = fields.take(&A::rounding);
    more.how_v3_bf16_cvt = {rounding == QOLA_ROUND_DEFAULT ? 1 : rounding - 1};
    QOLA_C_SET(how_v3_bf16_cvt, static_cast<int>(more.how_v3_bf16_cvt), "rounding")
    QOLA_C_SET(v3_bf16_cvt, static_cast<int>(more.how_v3_bf16_cvt), "rounding")
    if constexpr(backward)
    {
        more.is_v3_atomic_fp32 = {fields.take(&A::atomic16) == 0};
        QOLA_C_SET(v3_atomic_fp32, given.atomic16 == 0, "atomic16")
    }
    // The forward gives the same on every run.
    more.deterministic = {fields.take(&A::deterministic)};
    QOLA_C_SET(is_deterministic, given.deterministic != 0, "deterministic")
    more.qscale_type = {given.quantization};
    if constexpr(requires { args.qscale_type; } || takes<Entry>("qscale_type"))
        fields.take(&A::quantization);
    QOLA_C_SET(qscale_type, given.quantization, "quantization")

    QOLA_C_TAKE(batch, batch)
    QOLA_C_TAKE(nhead_q, nhead_q)
    QOLA_C_TAKE(nhead_k, nhead_k)
    QOLA_C_TAKE(seqlen_q, seqlen_q)
    QOLA_C_TAKE(seqlen_k, seqlen_k)
    QOLA_C_TAKE(hdim_q, hdim_q)
    QOLA_C_TAKE(hdim_v, hdim_v)
    // Not asked for by every direction, and of each true.
    fields.take(&A::max_seqlen_q);
    fields.take(&A::max_seqlen_k);
    QOLA_C_SET(max_seqlen_q, given.group ? given.max_seqlen_q : given.seqlen_q, "max_seqlen_q")
    QOLA_C_SET(max_seqlen_k, given.group ? given.max_seqlen_k : given.seqlen_k, "max_seqlen_k")
    QOLA_C_TAKE(sink_size, sink_size)
    QOLA_C_TAKE(min_seqlen_q, min_seqlen_q)

    const float scale = fields.take(&A::scale);
    const float usual = 1.f / std::sqrt(static_cast<float>(given.hdim_q));
    QOLA_C_SET(scale, scale == 0.f ? usual : scale, "scale")
    QOLA_C_SET(scale_s, scale == 0.f ? usual : scale, "scale")
    QOLA_C_TAKE(logits_soft_cap, logits_soft_cap)
    QOLA_C_TAKE(scale_p, scale_p)
    QOLA_C_TAKE(scale_o, scale_o)
    if constexpr(requires { args.scale_p; })
        args.scale_p = given.scale_p == 0.f ? 1.f : given.scale_p;
    if constexpr(requires { args.scale_o; })
        args.scale_o = given.scale_o == 0.f ? 1.f : given.scale_o;

    QOLA_C_TENSOR(q, q)
    QOLA_C_TENSOR(k, k)
    QOLA_C_TENSOR(v, v)
    QOLA_C_TENSOR(o, o)
    QOLA_C_TENSOR(do, d_o)
    QOLA_C_TENSOR(dq, dq)
    QOLA_C_TENSOR(dk, dk)
    QOLA_C_TENSOR(dv, dv)
    QOLA_C_TENSOR(dbias, d_bias)
    QOLA_C_TENSOR(q_descale, q_descale)
    QOLA_C_TENSOR(k_descale, k_descale)
    QOLA_C_TENSOR(v_descale, v_descale)
    if constexpr(requires { args.bias_ptr; })
    {
        qola_tensor bias = fields.take(&A::bias);
        if(given.bias_type == QOLA_BIAS_ALIBI)
            // AITER has the stride from one sequence's slopes to the next one's there.
            bias = {bias.data, 0, 0, bias.stride_batch};
        args.bias_ptr = bias.data;
        QOLA_C_SET(stride_bias, bias.stride_row, "bias.stride_row")
        QOLA_C_SET(nhead_stride_bias, bias.stride_head, "bias.stride_head")
        QOLA_C_SET(batch_stride_bias, bias.stride_batch, "bias.stride_batch")
    }
    if constexpr(requires { args.lse_ptr; })
    {
        const qola_tensor lse = fields.take(&A::lse);
        if(lse.stride_row != 0 && lse.stride_row != 1)
            invalid("lse.stride_row: " + std::to_string(lse.stride_row) + ", expected 0 or 1");
        args.lse_ptr = lse.data;
        QOLA_C_SET(nhead_stride_lse, lse.stride_head, "lse.stride_head")
        QOLA_C_SET(batch_stride_lse, lse.stride_batch, "lse.stride_batch")
        QOLA_C_SET(nhead_stride_lsed, lse.stride_head, "lse.stride_head")
        QOLA_C_SET(batch_stride_lsed, lse.stride_batch, "lse.stride_batch")
    }

    more.is_store_randval = {given.randval.data != nullptr};
    if constexpr(requires { args.rand_val_ptr; })
    {
        const qola_tensor randval = fields.take(&A::randval);
        args.rand_val_ptr         = randval.data;
        QOLA_C_SET(s_randval, randval.data != nullptr, "randval")
        QOLA_C_SET(is_store_randval, randval.data != nullptr, "randval")
        QOLA_C_SET(stride_randval, randval.stride_row, "randval.stride_row")
        QOLA_C_SET(nhead_stride_randval, randval.stride_head, "randval.stride_head")
        QOLA_C_SET(batch_stride_randval, randval.stride_batch, "randval.stride_batch")
    }
    QOLA_C_TAKE(p_drop, dropout)
    QOLA_C_SET(p_undrop, 1.f - given.dropout, "dropout")
    if constexpr(requires { args.drop_seed_offset; })
    {
        const auto seed   = fields.take(&A::drop_seed);
        const auto offset = fields.take(&A::drop_offset);
        fields.take(&A::drop_seed_ptr);
        fields.take(&A::drop_offset_ptr);
        if(given.drop_seed_ptr != nullptr)
            args.drop_seed_offset =
                std::pair<const void*, const void*>(given.drop_seed_ptr, given.drop_offset_ptr);
        else
            args.drop_seed_offset = std::pair<std::uint64_t, std::uint64_t>(seed, offset);
    }

    QOLA_C_TAKE(seqstart_q_ptr, seqstart_q)
    QOLA_C_TAKE(seqstart_k_ptr, seqstart_k)
    QOLA_C_TAKE(seqlen_q_ptr, seqlens_q)
    QOLA_C_TAKE(seqlen_k_ptr, seqlens_k)
    QOLA_C_TAKE(cu_seqlen_q_ptr, cu_seqlens_q)
    QOLA_C_TAKE(cu_seqlen_k_ptr, cu_seqlens_k)
    QOLA_C_TAKE(sink_ptr, sink)
    QOLA_C_TAKE(d_sink_ptr, d_sink)
    QOLA_C_TAKE(block_scale_seqstart_q_ptr, block_scale_seqstart_q)
    QOLA_C_TAKE(block_scale_seqstart_k_ptr, block_scale_seqstart_k)
    QOLA_C_TAKE(block_scale_size_q, block_scale_size_q)
    QOLA_C_TAKE(block_scale_size_kv, block_scale_size_k)

    if constexpr(requires { args.block_table_ptr; })
        args.block_table_ptr = const_cast<void*>(fields.take(&A::block_table));
    QOLA_C_TAKE(batch_stride_block_table, block_table_stride)
    QOLA_C_TAKE(page_block_size, page_size)
    QOLA_C_TAKE(is_gappy, gappy)
    QOLA_C_TAKE(cache_batch_idx, cache_batch_idx)
    QOLA_C_TAKE(num_total_pages, num_pages)
    QOLA_C_TAKE(kv_indptr, kv_indptr)
    QOLA_C_TAKE(kv_page_indices, kv_page_indices)
    QOLA_C_TAKE(kv_last_page_lens, kv_last_page_lens)
    QOLA_C_TAKE(kv_memory_layout, kv_layout)
    QOLA_C_TAKE(kv_lookup_table, kv_lookup)

    if constexpr(splits)
        at_least_1(fields.take(&A::num_splits), "num_splits");
    fields.check_left(Entry::name);

    // Scratch memory. The number of rows, sequence after sequence; and of accumulators for each head.
    const std::int64_t rows    = given.seqlen_q * (given.group ? 1 : given.batch);
    const std::int64_t heads   = given.nhead_q;
    const std::int64_t own     = given.group ? rows : given.seqlen_q;
    const std::int64_t outside = given.group ? 0 : heads * own;
    if constexpr(splits)
    {
        QOLA_C_SET(num_splits, given.num_splits, "num_splits")
        args.lse_acc_ptr = workspace(4 * given.num_splits * rows * heads, false);
        QOLA_C_SET(nhead_stride_lse_acc, own, "seqlen_q")
        QOLA_C_SET(batch_stride_lse_acc, outside, "seqlen_q")
        QOLA_C_SET(split_stride_lse_acc, rows * heads, "seqlen_q")
        args.o_acc_ptr = workspace(4 * given.num_splits * rows * heads * given.hdim_v, false);
        QOLA_C_SET(stride_o_acc, given.hdim_v, "hdim_v")
        QOLA_C_SET(nhead_stride_o_acc, own * given.hdim_v, "seqlen_q")
        QOLA_C_SET(batch_stride_o_acc, outside * given.hdim_v, "seqlen_q")
        QOLA_C_SET(split_stride_o_acc, rows * heads * given.hdim_v, "seqlen_q")
    }
    if constexpr(backward)
    {
        // As lse, whose strides it shares.
        const std::int64_t last = (given.batch - 1) * given.lse.stride_batch + (heads - 1) * given.lse.stride_head;
        args.d_ptr              = workspace(4 * (last + own), false);
    }
    if constexpr(requires { args.dq_acc_ptr; })
    {
        // Head after head: assembly kernels take no other order, Composable Kernel any. In 16 bits they
        // have whole blocks of rows, and of a head's dimensions, for each sequence.
        const bool padded         = given.atomic16 != 0 && assembly;
        // In group mode no order suits both these and Composable Kernel, which may have to serve.
        if(padded && given.group)
            throw Refused(QOLA_UNSUPPORTED, "atomic16: set, with group and assembly kernels");
        const std::int64_t length = padded ? (own + 15) / 16 * 16 : own;
        const std::int64_t width =
            !padded ? given.hdim_q : given.hdim_q > 128 ? std::max<std::int64_t>(given.hdim_q, 192) : 128;
        const std::int64_t all    = (given.group ? 1 : given.batch) * heads * length * width;
        const std::int64_t keys   = given.group ? given.max_seqlen_k : given.seqlen_k;
        const std::int64_t tile   = rows_of_split<Entry>(given.hdim_q);
        const std::int64_t parts  = given.deterministic ? (keys + tile - 1) / tile : 1;
        args.dq_acc_ptr           = workspace(4 * parts * all, true);
        QOLA_C_SET(stride_dq_acc, width, "hdim_q")
        QOLA_C_SET(nhead_stride_dq_acc, length * width, "seqlen_q")
        QOLA_C_SET(batch_stride_dq_acc, given.group ? 0 : heads * length * width, "seqlen_q")
        QOLA_C_SET(split_stride_dq_acc, all, "seqlen_q")
    }
    if constexpr(requires { args.workspace_alloc; })
        args.workspace_alloc = [&workspace](std::size_t bytes, bool zeroed) {
            return workspace(bytes, zeroed);
        };
    if constexpr(requires { args.pinned_host_alloc; })
        args.pinned_host_alloc = [real = workspace.real()](std::size_t bytes) {
            if(!real)
                return std::shared_ptr<void>(std::malloc(bytes), std::free);
            void* memory = nullptr;
            if(hipHostMalloc(&memory, bytes, hipHostMallocDefault) != hipSuccess)
                throw std::bad_alloc();
            return std::shared_ptr<void>(memory, [](void* of) { static_cast<void>(hipHostFree(of)); });
        };
}

#undef QOLA_C_TENSOR
#undef QOLA_C_STRIDE
#undef QOLA_C_TAKE
#undef QOLA_C_SET

inline int status_of(float answer)
{
    if(answer >= 0.f)
        return QOLA_OK;
    const int status = static_cast<int>(answer);
    return status >= QOLA_UNAVAILABLE && status < 0 ? status : QOLA_FAILED;
}

/// Calls `run()` and turns what it throws into a status and a text.
template <class Run>
int answered(Run run)
{
    try
    {
        const int status = run();
        return status == QOLA_OK ? status : fail(status, status_string(status));
    }
    catch(const Refused& refused)
    {
        return fail(refused.status, refused.what());
    }
    catch(const qola_entry::StatusError& error)
    {
        return fail(static_cast<int>(error.status), error.what());
    }
    catch(const std::exception& error)
    {
        return fail(QOLA_FAILED, error.what());
    }
}

/// Calls the C++ entry point.
template <class Entry>
int call(Fields& fields, Workspace& workspace)
{
    typename Entry::Args args{};
    Parameters more;
    fill<Entry>(args, more, fields, workspace);
    const float answer = Entry::call(args, ck_tile::stream_config{workspace.stream()}, more);
    workspace.check();
    return status_of(answer);
}

template <class Entry>
int launch(const qola_mha_args* args, void* stream)
{
    return answered([&] {
        Fields fields(args);
        Workspace workspace(fields.values.workspace, fields.values.workspace_size, static_cast<hipStream_t>(stream));
        return call<Entry>(fields, workspace);
    });
}

/// What a call launches and needs.
struct Asked
{
    int status = QOLA_OK;
    std::vector<qola_entry::Noted> kernels;
    std::uint64_t workspace = 0;
};

template <class Entry>
Asked ask(const qola_mha_args* args)
{
    Asked asked;
    Fields fields(args);
    Workspace workspace;
    const qola_entry::Recorded recorded(asked.kernels);
    asked.status    = call<Entry>(fields, workspace);
    asked.workspace = workspace.needed();
    return asked;
}

inline qola_stage stage_of(const qola_entry::Noted& noted)
{
    if(noted.kernel != nullptr)
        return {noted.kernel, nullptr, 0, 0};
    if(noted.function != nullptr)
        return {nullptr, hipKernelNameRef(static_cast<hipFunction_t>(noted.function)), 1, 0};
    return {nullptr, hipKernelNameRefByPtr(noted.symbol, nullptr), 0, 0};
}

template <class Entry>
int find(const qola_mha_args* args, qola_found* found)
{
    return answered([&] {
        if(found == nullptr || found->struct_size < FIRST_FOUND)
            invalid("found: null, or struct_size is not sizeof(qola_found)");
        const Asked asked = ask<Entry>(args);
        if(asked.status != QOLA_OK)
            return asked.status;
        qola_found own{};
        own.struct_size    = found->struct_size;
        own.stage_count    = static_cast<std::uint32_t>(asked.kernels.size());
        own.workspace_size = asked.workspace;
        for(std::size_t at = 0; at < std::min<std::size_t>(asked.kernels.size(), QOLA_MAX_STAGES); ++at)
            own.stages[at] = stage_of(asked.kernels[at]);
        const std::size_t size = found->struct_size;
        std::memset(static_cast<void*>(found), 0, size);
        std::memcpy(found, &own, std::min(size, sizeof own));
        return static_cast<int>(QOLA_OK);
    });
}

template <class Entry>
int workspace_size(const qola_mha_args* args, std::uint64_t* size)
{
    return answered([&] {
        if(size == nullptr)
            invalid("size: null");
        typename Entry::Args filled{};
        if constexpr(requires { filled.workspace_alloc; })
        {
            const Asked asked = ask<Entry>(args);
            *size             = asked.workspace;
            return asked.status;
        }
        else
        {
            Fields fields(args);
            Workspace workspace;
            Parameters more;
            fill<Entry>(filled, more, fields, workspace);
            *size = workspace.needed();
            return static_cast<int>(QOLA_OK);
        }
    });
}

template <class Entry>
int prepare(const qola_mha_args* args)
{
    return answered([&] {
        const Asked asked = ask<Entry>(args);
        const auto rows   = qola_entry::rows_of(asked.kernels);
        if(asked.status == QOLA_OK && !rows.empty())
            for(const qola_entry::Noted& noted : asked.kernels)
                if(noted.load != nullptr)
                {
                    noted.load(rows);
                    break;
                }
        return asked.status;
    });
}

/// The kernels of an entry point that this library has: it may be built for some of its archs.
template <class Entry>
const std::vector<const char*>& kernels()
{
    static const auto& names = *[] {
        auto* found = new std::vector<const char*>;
        for(const Kernel& kernel : Entry::kernels)
            for(std::string_view rest = kernel.archs; kernel.name != nullptr && !rest.empty();)
            {
                const std::size_t end = std::min(rest.find(','), rest.size());
                if(qola_entry::has_code_for(rest.substr(0, end)))
                {
                    found->push_back(kernel.name);
                    break;
                }
                rest.remove_prefix(std::min(end + 1, rest.size()));
            }
        return found;
    }();
    return names;
}

template <class Entry>
const char* kernel_name(std::size_t number)
{
    const auto& names = kernels<Entry>();
    return number < names.size() ? names[number] : nullptr;
}

} // namespace qola_c_entry

/// Defines the functions that QOLA_C_ENTRY declares.
#define QOLA_C_DEFINE(entry, Entry)                                                                   \
    extern "C" {                                                                                      \
    int QOLA_C(entry)(const qola_mha_args* args, void* stream)                                        \
    {                                                                                                 \
        return qola_c_entry::launch<Entry>(args, stream);                                             \
    }                                                                                                 \
    int QOLA_C(entry##_find)(const qola_mha_args* args, qola_found* found)                            \
    {                                                                                                 \
        return qola_c_entry::find<Entry>(args, found);                                                \
    }                                                                                                 \
    int QOLA_C(entry##_workspace_size)(const qola_mha_args* args, uint64_t* size)                     \
    {                                                                                                 \
        return qola_c_entry::workspace_size<Entry>(args, size);                                       \
    }                                                                                                 \
    int QOLA_C(entry##_prepare)(const qola_mha_args* args) { return qola_c_entry::prepare<Entry>(args); } \
    size_t QOLA_C(entry##_kernel_count)(void) { return qola_c_entry::kernels<Entry>().size(); }       \
    const char* QOLA_C(entry##_kernel_name)(size_t number)                                            \
    {                                                                                                 \
        return qola_c_entry::kernel_name<Entry>(number);                                              \
    }                                                                                                 \
    const char* QOLA_C(entry##_status_string)(int status) { return qola_c_entry::status_string(status); } \
    const char* QOLA_C(entry##_last_error)(void) { return qola_c_entry::last_error; }                 \
    }
