// Reads the fields of a C caller that is older or newer than the library; not installed.
#pragma once

#include "qola_c_refused.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace qola_c_entry {

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

} // namespace qola_c_entry
