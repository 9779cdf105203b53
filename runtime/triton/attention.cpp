// Attention by qola's own kernels: selects the kernels of a problem, and sets their arguments.
#include "library.h"

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace qola_triton {
namespace {

using Attention = qola_triton_attention;

// Size of the structure in the first version. Later versions only add fields at the end.
static_assert(offsetof(Attention, q) == 80 && offsetof(Attention, d_o) == 264 && offsetof(Attention, dbias_row) == 424);

/// Copies the caller's structure; fields that it lacks are 0.
Attention whole(const Attention* given)
{
    Attention attention = {};
    if(given == nullptr || given->size < sizeof(std::size_t) || given->size > sizeof(Attention))
        throw Refusal(QOLA_TRITON_INVALID,
                      given == nullptr ? "no structure"
                                       : "a structure of " + std::to_string(given->size) + " bytes, more than the " +
                                             std::to_string(sizeof(Attention)) + " known here");
    std::memcpy(&attention, given, given->size);
    const bool sound = attention.batch >= 0 && attention.heads > 0 && attention.heads_k > 0 &&
                       attention.heads % attention.heads_k == 0 && attention.rows >= 0 && attention.columns >= 0 &&
                       attention.dropout >= 0 && attention.dropout < 1 &&
                       (attention.starts_q == nullptr) == (attention.starts_k == nullptr);
    if(!sound)
        throw Refusal(QOLA_TRITON_INVALID,
                      "batch, heads, heads_k, rows, columns, dropout or starts contradict each other");
    // Row numbers then start at the first sequence.
    if(attention.starts_q != nullptr)
        for(std::int64_t Attention::*stride : {&Attention::q_batch,
                                               &Attention::k_batch,
                                               &Attention::v_batch,
                                               &Attention::bias_batch,
                                               &Attention::o_batch,
                                               &Attention::lse_batch,
                                               &Attention::do_batch,
                                               &Attention::dq_batch,
                                               &Attention::dk_batch,
                                               &Attention::dv_batch,
                                               &Attention::dbias_batch})
            attention.*stride = 0;
    return attention;
}

/// A kernel of an entry point, with its properties.
struct Part
{
    const char* kernel;
    bool with_mask;  ///< has the choices of masks
    bool by_column;  ///< a workgroup processes a tile of columns and a head of K
    bool with_dbias; ///< can write the gradient of the bias
};

using Parts = std::initializer_list<Part>;

constexpr Parts forward_parts  = {{"attention_forward", true, false, false}};
constexpr Parts backward_parts = {{"attention_backward_delta", false, false, false},
                                  {"attention_backward_dkdv", true, true, false},
                                  {"attention_backward_dq", true, false, true}};

Choices choices_of(const Attention& attention, const Part& part)
{
    const char* const dtypes[] = {"", "fp16", "bf16"};
    if(attention.dtype < 1 || attention.dtype > 2)
        throw Refusal(QOLA_TRITON_INVALID, "dtype " + std::to_string(attention.dtype));
    Choices choices = {{"dtype", dtypes[attention.dtype]},
                       {"HDIM", std::to_string(attention.hdim)},
                       {"VARLEN", attention.starts_q != nullptr ? "1" : "0"}};
    if(part.with_mask)
    {
        choices["CAUSAL"]  = std::to_string(attention.causal);
        choices["BIAS"]    = attention.bias != nullptr ? "1" : "0";
        choices["DROPOUT"] = attention.dropout > 0 ? "1" : "0";
    }
    if(part.with_dbias)
        choices["DBIAS"] = attention.dbias != nullptr ? "1" : "0";
    return choices;
}

/// In a query, tensors may be missing and count as valid.
Values values_of(const Attention& attention, bool asked)
{
    std::map<std::string, qola_triton_argument> values;
    const auto whole_number = [&](const char* name, std::int64_t value) { values[name] = {name, value, 0}; };
    const auto pointer      = [&](const char* name, const void* value) {
        whole_number(name, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(value)));
    };
    // A required pointer must not be null.
    const auto needed = [&](const char* name, const void* value) {
        if(value != nullptr || asked)
            pointer(name, value);
    };
#define POINTER(name) needed(#name, attention.name)
#define NUMBER(name) whole_number(#name, attention.name)
#define STRIDES(name) (NUMBER(name##_batch), NUMBER(name##_head), NUMBER(name##_row))
    POINTER(q), POINTER(k), POINTER(v), POINTER(o), POINTER(lse);
    POINTER(delta), POINTER(dq), POINTER(dk), POINTER(dv);
    needed("do", attention.d_o);
    pointer("bias", attention.bias), pointer("dbias", attention.dbias);
    pointer("starts_q", attention.starts_q), pointer("starts_k", attention.starts_k);
    STRIDES(q), STRIDES(k), STRIDES(v), STRIDES(bias), STRIDES(o), STRIDES(do), STRIDES(dq);
    STRIDES(dk), STRIDES(dv), STRIDES(dbias);
    NUMBER(lse_batch), NUMBER(lse_head), NUMBER(rows), NUMBER(columns), NUMBER(seed), NUMBER(offset);
#undef STRIDES
#undef NUMBER
#undef POINTER
    whole_number("group", attention.heads / attention.heads_k);
    const double kept = 1.0 - static_cast<double>(attention.dropout);
    // Threshold in 2^32; without dropout the kernel does not read it.
    const double below = kept * 4294967296.0;
    whole_number("keep_below", below < 4294967295.0 ? static_cast<std::int64_t>(below) : 4294967295);
    values["scale"]      = {"scale", 0, attention.scale};
    values["keep_scale"] = {"keep_scale", 0, 1.0 / kept};
    return [values](const std::string& name) -> std::optional<qola_triton_argument> {
        const auto found = values.find(name);
        if(found == values.end())
            return std::nullopt;
        return found->second;
    };
}

/// A launch over tiles of rows, or of columns.
Launch prepared(const Attention& attention, const Part& part)
{
    const Instance& instance = find(part.kernel, choices_of(attention, part));
    const std::int64_t block = constant(instance, part.by_column ? "BLOCK_N" : "BLOCK_M");
    const std::int64_t size  = part.by_column ? attention.columns : attention.rows;
    return prepare(instance,
                   values_of(attention, false),
                   {static_cast<std::uint32_t>((size + block - 1) / block),
                    static_cast<std::uint32_t>(part.by_column ? attention.heads_k : attention.heads),
                    static_cast<std::uint32_t>(attention.batch)});
}

/// Throws Refusal if a kernel does not support the problem; another kernel may.
void must_take(const Instance& instance, const Values& values)
{
    try
    {
        packed(instance, values);
    }
    catch(const Refusal& refusal)
    {
        throw Refusal(QOLA_TRITON_NO_KERNEL, refusal.what());
    }
}

} // namespace

int attend(bool backward, const Attention* given, void* stream) noexcept
{
    return guarded([&] {
        const Attention attention = whole(given);
        std::vector<Launch> launches;
        for(const Part& part : backward ? backward_parts : forward_parts)
            launches.push_back(prepared(attention, part));
        for(Launch& launch : launches)
            run(std::move(launch), stream);
    });
}

int find_attention(bool backward, const Attention* given, qola_triton_found* found) noexcept
{
    return guarded([&] {
        const Attention attention = whole(given);
        const Values values       = values_of(attention, true);
        const Instance* most      = nullptr;
        for(const Part& part : backward ? backward_parts : forward_parts)
        {
            const Instance& instance = find(part.kernel, choices_of(attention, part));
            must_take(instance, values);
            if(most == nullptr || part.by_column)
                most = &instance;
        }
        tell(*most, found);
    });
}

} // namespace qola_triton
