// Reads and checks the problem of a C caller, who may be older or newer than the library, and reports its failures; not
// installed.
#pragma once

#include "qola_c.h"
#include "qola_call.h"
#include "qola_reach.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

namespace qola_c_entry {

static_assert(QOLA_NO_KERNEL == static_cast<int>(QOLA_STATUS_NO_KERNEL) &&
              QOLA_NO_ARCH == static_cast<int>(QOLA_STATUS_NO_ARCH) &&
              QOLA_FAILED == static_cast<int>(QOLA_STATUS_FAILED) &&
              QOLA_UNAVAILABLE == static_cast<int>(QOLA_STATUS_UNAVAILABLE));

/// Ends a call with a status and a message.
class Refused : public std::runtime_error
{
    public:
    Refused(int status, const std::string& what) : std::runtime_error(what), status(status) {}
    const int status;
};

[[noreturn]] inline void invalid(const std::string& what) { throw Refused(QOLA_INVALID, what); }

/// Message of this thread's last failure. Not a std::string, so that a thread has nothing to destroy.
inline thread_local char last_error[sizeof qola_entry::reason] = "";

inline int fail(int status, const char* what)
{
    qola_entry::copy_text(last_error, what);
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

inline int status_of(float answer)
{
    if(answer >= 0.f)
        return QOLA_OK;
    const int status = static_cast<int>(answer);
    return status >= QOLA_UNAVAILABLE && status < 0 ? status : QOLA_FAILED;
}

/// Calls `run()` and converts its exceptions to a status and a message.
template <class Run>
int answered(Run run)
{
    try
    {
        qola_entry::reason[0] = '\0';
        const int status      = run();
        if(status == QOLA_OK)
            return status;
        const bool printed = status == QOLA_FAILED || status == QOLA_UNAVAILABLE;
        return fail(status, printed && qola_entry::reason[0] != '\0' ? qola_entry::reason : status_string(status));
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

/// Smallest and largest accepted size of the structure. A larger one is probably uninitialised.
inline constexpr std::size_t FIRST_ARGS = 872;
inline constexpr std::size_t BEYOND_ARGS = 1 << 16;
static_assert(sizeof(qola_mha_args) >= FIRST_ARGS);

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
    FIELD(block_scale_size_q) FIELD(block_scale_size_k) FIELD(k_new) FIELD(v_new) FIELD(seqlen_new) \
    FIELD(rotary_cos) FIELD(rotary_sin) FIELD(rope) FIELD(rotary_dim)

#define QOLA_C_SIZE(field) +sizeof(qola_mha_args::field)
// The structure has no padding: unknown bytes could not be refused.
static_assert(sizeof(qola_mha_args) ==
              sizeof(qola_mha_args::struct_size) QOLA_C_FIELDS(QOLA_C_SIZE));
#undef QOLA_C_SIZE

/// The fields of a caller. Code that passes a field on marks it as taken; at the end every set field must be
/// taken.
class Fields
{
    public:
    explicit Fields(const qola_mha_args* given)
    {
        if(given == nullptr)
            invalid("args: null");
        const std::size_t size = given->struct_size;
        if(size < FIRST_ARGS || size >= BEYOND_ARGS)
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

    /// Throws Refused if a field is set that was not taken.
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

/// AITER's values of a mask: its kind and the window.
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
    // Also accepts AITER's own values: -1, and 0 on the right of a causal mask.
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
        // Windows are causal masks with limits: AITER's kind for windows is bottom-right for Composable
        // Kernel, but top-left for assembly kernels.
        return {mask == QOLA_MASK_WINDOW_TOP_LEFT ? 1 : 2, left, right};
    default: invalid("mask: " + std::to_string(mask) + ", expected a qola_mask");
    }
}

inline void at_least_1(std::int64_t value, const char* name)
{
    if(value < 1)
        invalid(std::string(name) + ": " + std::to_string(value) + ", expected 1 or more");
}

/// Refuses a stride with which the rows of one sequence, or of the pages, exceed the offsets of kernels.
inline void check_rows(const qola_tensor& tensor, const char* name, std::int64_t rows, int bytes, bool written)
{
    const std::string field = std::string(name) + ".stride_row";
    const std::string why = qola_entry::beyond_reach(field.c_str(), tensor.stride_row, rows, bytes, written);
    if(!why.empty())
        throw Refused(QOLA_UNSUPPORTED, why);
}

/// Refuses strides of Q, K, V, O, their gradients and the matrices of scores beyond the offsets of kernels.
///
/// `rows_k` is the number of rows of K and V that a kernel addresses from one base.
inline void check_strides(const qola_mha_args& args, bool backward, std::int64_t rows_k)
{
    const char* type = dtype_of(args.dtype);
    const int bytes = qola_entry::bytes_of(type, false), bytes_o = qola_entry::bytes_of(type, true);
    const std::int64_t rows_q = args.group ? args.max_seqlen_q : args.seqlen_q;
    check_rows(args.q, "q", rows_q, bytes, false);
    check_rows(args.k, "k", rows_k, bytes, false);
    check_rows(args.v, "v", rows_k, bytes, false);
    check_rows(args.o, "o", rows_q, bytes_o, !backward);
    if(args.bias_type == QOLA_BIAS_ELEMENTWISE)
        check_rows(args.bias, "bias", rows_q, bytes == 1 ? 4 : bytes, false);
    if(args.randval.data != nullptr)
        check_rows(args.randval, "randval", rows_q, 1, true);
    if(!backward)
        return;
    check_rows(args.d_o, "d_o", rows_q, bytes, false);
    check_rows(args.dq, "dq", rows_q, bytes, true);
    check_rows(args.dk, "dk", rows_k, bytes, true);
    check_rows(args.dv, "dv", rows_k, bytes, true);
    if(args.d_bias.data != nullptr)
        check_rows(args.d_bias, "d_bias", rows_q, bytes, true);
}

/// Returns whether assembly kernels, which compute the addresses of sequences and heads with 32 bits, reach all of
/// Q, K, V, O and their gradients.
inline bool assembly_reaches(const qola_mha_args& args)
{
    const char* type   = dtype_of(args.dtype);
    const auto reaches = [&](const qola_tensor& tensor, std::int64_t heads, std::int64_t rows, bool output) {
        const double last = static_cast<double>(args.batch) * static_cast<double>(tensor.stride_batch) +
                            static_cast<double>(heads) * static_cast<double>(tensor.stride_head) +
                            (static_cast<double>(rows) + qola_entry::TILE_ROWS) * static_cast<double>(tensor.stride_row);
        return last * qola_entry::bytes_of(type, output) <= qola_entry::REACH;
    };
    // Without strides of its own: dQ in 32 bits, which a backward adds up.
    const double sums = 4.0 * static_cast<double>(args.batch) * static_cast<double>(args.nhead_q) *
                        (static_cast<double>(args.seqlen_q) + qola_entry::TILE_ROWS) * static_cast<double>(args.hdim_q);
    if(args.dq.data != nullptr && sums > qola_entry::REACH)
        return false;
    const auto rows_q = args.seqlen_q, rows_k = args.seqlen_k, heads_q = args.nhead_q, heads_k = args.nhead_k;
    return reaches(args.q, heads_q, rows_q, false) && reaches(args.k, heads_k, rows_k, false) &&
           reaches(args.v, heads_k, rows_k, false) && reaches(args.o, heads_q, rows_q, true) &&
           reaches(args.d_o, heads_q, rows_q, false) && reaches(args.dq, heads_q, rows_q, false) &&
           reaches(args.dk, heads_q, rows_k, false) && reaches(args.dv, heads_q, rows_k, false);
}

/// Divisor of the page size in paged prefill and append-KV.
inline constexpr std::int64_t PAGE_ROWS = 128;

/// Differences between the entry points' problems.
struct Asking
{
    bool backward;
    bool seqstart_k; ///< group mode takes seqstart_k
    bool paged;      ///< pages or splits: takes lengths of K without group mode
    bool launched;   ///< a launch, not a query
};

/// Refuses lengths that kernels would ignore or misinterpret.
inline void check_lengths(const qola_mha_args& args, const Asking& asking)
{
    const auto without_group = [&](const void* field, const char* name) {
        if(field != nullptr && args.group == 0)
            invalid(std::string(name) + ": set, without group");
    };
    if(args.seqlens_q != nullptr && args.cu_seqlens_q != nullptr)
        invalid("cu_seqlens_q: set together with seqlens_q");
    if(args.seqlens_k != nullptr && args.cu_seqlens_k != nullptr)
        invalid("cu_seqlens_k: set together with seqlens_k");
    if(asking.paged)
        return;
    without_group(args.seqstart_q, "seqstart_q");
    without_group(args.seqstart_k, "seqstart_k");
    without_group(args.seqlens_q, "seqlens_q");
    without_group(args.seqlens_k, "seqlens_k");
    if(!asking.backward)
        return;
    without_group(args.cu_seqlens_q, "cu_seqlens_q");
    without_group(args.cu_seqlens_k, "cu_seqlens_k");
}

/// Refuses invalid sequences, heads and choices of kernels.
inline void check_heads(const qola_mha_args& args)
{
    at_least_1(args.batch, "batch");
    at_least_1(args.nhead_q, "nhead_q");
    at_least_1(args.nhead_k, "nhead_k");
    at_least_1(args.hdim_q, "hdim_q");
    at_least_1(args.hdim_v, "hdim_v");
    if(args.nhead_q % args.nhead_k != 0)
        invalid("nhead_k: " + std::to_string(args.nhead_k) + " does not divide nhead_q");
    if(args.kernels != QOLA_KERNELS_ANY && args.kernels != QOLA_KERNELS_CK)
        invalid("kernels: " + std::to_string(args.kernels) + ", expected a qola_kernels");
}

/// Refuses page sizes with which a tile of K or V would span two pages, like Composable Kernel's runner.
inline void check_pages(const qola_mha_args& args)
{
    if(args.block_table != nullptr && (args.page_size < PAGE_ROWS || args.page_size % PAGE_ROWS != 0))
        invalid("page_size: " + std::to_string(args.page_size) + ", expected a multiple of " +
                std::to_string(PAGE_ROWS));
}

/// Refuses an invalid problem, independent of the kernel.
inline void check(const qola_mha_args& args, const Asking& asking)
{
    const bool backward = asking.backward, launched = asking.launched;
    check_heads(args);
    at_least_1(args.seqlen_q, "seqlen_q");
    at_least_1(args.seqlen_k, "seqlen_k");
    if(args.group != 0 && args.group != 1)
        invalid("group: " + std::to_string(args.group) + ", expected 0 or 1");
    if(args.group == 1)
        at_least_1(args.max_seqlen_q, "max_seqlen_q, with group");
    if(args.group == 1 && backward)
        at_least_1(args.max_seqlen_k, "max_seqlen_k, with group");
    if(args.group == 1 && launched && args.seqstart_q == nullptr)
        invalid("seqstart_q: null, with group");
    if(args.group == 1 && launched && asking.seqstart_k && args.seqstart_k == nullptr)
        invalid("seqstart_k: null, with group");
    check_lengths(args, asking);
    if(!(args.dropout >= 0.f && args.dropout < 1.f))
        invalid("dropout: expected a number of at least 0, and below 1");
    if((args.drop_seed_ptr == nullptr) != (args.drop_offset_ptr == nullptr))
        invalid("drop_seed_ptr, drop_offset_ptr: only one of them is set");
    if(args.drop_seed_ptr != nullptr && (args.drop_seed != 0 || args.drop_offset != 0))
        invalid("drop_seed, drop_offset: set together with drop_seed_ptr");
    if(args.bias_type < QOLA_BIAS_NONE || args.bias_type > QOLA_BIAS_ALIBI)
        invalid("bias_type: " + std::to_string(args.bias_type) + ", expected a qola_bias");
    if(args.bias_type == QOLA_BIAS_NONE && (args.bias.data != nullptr || args.d_bias.data != nullptr))
        invalid("bias: set, and bias_type is QOLA_BIAS_NONE");
    if(args.bias_type != QOLA_BIAS_NONE && launched && args.bias.data == nullptr)
        invalid("bias: null, and bias_type is set");
    if(args.bias_type == QOLA_BIAS_ALIBI &&
       (args.bias.stride_row != 0 || args.bias.stride_head < 0 || args.bias.stride_head > 1))
        invalid("bias.stride_row, bias.stride_head: slopes lie without gaps, expected 0 and 0 or 1");
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
        if(args.lse.stride_head < 0 || args.lse.stride_batch < 0)
            invalid("lse.stride_head, lse.stride_batch: below 0");
        needs(args.d_o, "d_o");
        needs(args.dq, "dq");
        needs(args.dk, "dk");
        needs(args.dv, "dv");
    }
}

} // namespace qola_c_entry
