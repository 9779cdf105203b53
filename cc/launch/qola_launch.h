// Calls the entry points of a library with problems of a table; a HIP runtime without a GPU sees
// what they launch. The member names are AITER's, of every tree that is known: what the arguments
// of the tree at hand do not have is left out.
#ifndef QOLA_LAUNCH_H
#define QOLA_LAUNCH_H

#include <hip/hip_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace qola_launch {

/// Sequences, heads and rows of a problem: no kernel runs, so it may be small. Two heads of Q have
/// one of K and V.
inline constexpr int BATCH = 2, HEADS_Q = 4, HEADS_K = 2, ROWS = 256, SPLITS = 2, PAGE = 128;
/// How float becomes bf16, in AITER's numbers: to nearest, ties away from zero.
inline constexpr int ROUNDING = 1;

/// A line of the table.
struct Problem
{
    std::string entry, dtype;
    int hdim_q = 0, hdim_v = 0, mask = 0, bias = 0, rope = 0;
    bool group = false, lse = false, dropout = false, dbias = false, deterministic = false;
    bool logits = false, skip = false, sink = false, pages = false, assembly = false;
};

inline void check(hipError_t error, const char* what)
{
    if(error == hipSuccess)
        return;
    std::fprintf(stderr, "launch: %s: %s\n", what, hipGetErrorString(error));
    std::exit(3);
}

/// Device memory for one call.
class Memory
{
    public:
    Memory()              = default;
    Memory(const Memory&) = delete;
    ~Memory()
    {
        for(void* pointer : pointers)
            (void)hipFree(pointer);
    }

    void* operator()(std::size_t bytes)
    {
        void* pointer = nullptr;
        check(hipMalloc(&pointer, bytes), "hipMalloc");
        pointers.push_back(pointer);
        return pointer;
    }

    /// 0, step, 2 * step, ...
    void* offsets(int count, int step)
    {
        std::vector<int> values;
        for(int i = 0; i < count; ++i)
            values.push_back(i * step);
        const std::size_t bytes = values.size() * sizeof values[0];
        void* pointer           = (*this)(bytes);
        check(hipMemcpy(pointer, values.data(), bytes, hipMemcpyHostToDevice), "hipMemcpy");
        return pointer;
    }

    private:
    std::vector<void*> pointers;
};

/// A number as whatever type a parameter has: of trees without Composable Kernel, masks are int.
struct Number
{
    int value;

    template <class T>
        requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
    operator T() const
    {
        return static_cast<T>(value);
    }
};

/// What the entry points ask for beside their arguments, by the parameters' names.
struct Values
{
    explicit Values(const Problem& p)
        : q_dtype_str(p.dtype),
          is_group_mode{p.group},
          mask_type{p.mask},
          bias_type{p.bias},
          has_lse{p.lse},
          has_dbias{p.dbias},
          rope_type{p.rope},
          deterministic{p.deterministic},
          use_ext_asm{p.assembly}
    {
    }

    std::string q_dtype_str;
    Number is_group_mode, mask_type, bias_type, has_lse, has_dbias, rope_type, deterministic, use_ext_asm;
    Number how_v3_bf16_cvt{ROUNDING}, is_store_randval{0}, is_v3_atomic_fp32{1}, qscale_type{0}, has_sink{0};
};

#define QOLA_LAUNCH_SET(member, value)                                      \
    if constexpr(requires { args.member; })                                 \
    {                                                                       \
        using Member = std::remove_reference_t<decltype(args.member)>;      \
        args.member  = static_cast<Member>(value);                          \
    }

/// A tensor of [batch, row, head, dim], by the members that are named after it.
#define QOLA_LAUNCH_TENSOR(name, heads, dim)                                \
    QOLA_LAUNCH_SET(name##_ptr, memory(std::size_t{4} * BATCH * ROWS * (heads) * (dim))) \
    QOLA_LAUNCH_SET(stride_##name, (heads) * (dim))                         \
    QOLA_LAUNCH_SET(nhead_stride_##name, dim)                               \
    QOLA_LAUNCH_SET(batch_stride_##name, p.group ? 0 : ROWS * (heads) * (dim))

/// A value for each pair of rows, or for each row.
#define QOLA_LAUNCH_SCORES(name, columns)                                   \
    QOLA_LAUNCH_SET(stride_##name, columns)                                 \
    QOLA_LAUNCH_SET(nhead_stride_##name, rows * (columns))                  \
    QOLA_LAUNCH_SET(batch_stride_##name, p.group ? 0 : HEADS_Q * ROWS * (columns))

/// Sets what arguments have of a cache: pages, and rows that are appended.
template <class Args>
void fill_cache(Args& args, const Problem& p, Memory& memory)
{
    QOLA_LAUNCH_SET(num_total_pages, BATCH * ROWS / PAGE)
    QOLA_LAUNCH_SET(page_block_size, PAGE)
    QOLA_LAUNCH_SET(kv_indptr, memory.offsets(BATCH + 1, ROWS / PAGE))
    QOLA_LAUNCH_SET(kv_page_indices, memory.offsets(BATCH * ROWS / PAGE, 1))
    QOLA_LAUNCH_SET(kv_last_page_lens, memory.offsets(BATCH, 1))
    if(p.pages)
    {
        QOLA_LAUNCH_SET(block_table_ptr, memory.offsets(BATCH * ROWS / PAGE, 1))
        QOLA_LAUNCH_SET(batch_stride_block_table, ROWS / PAGE)
    }
    if constexpr(requires { args.knew_ptr; })
    {
        QOLA_LAUNCH_SET(seqlen_knew, ROWS / 2)
        QOLA_LAUNCH_SET(seqlen_k_ptr, memory.offsets(BATCH, ROWS / 2))
        QOLA_LAUNCH_TENSOR(knew, HEADS_K, p.hdim_q)
        QOLA_LAUNCH_TENSOR(vnew, HEADS_K, p.hdim_v)
    }
    if(p.rope)
    {
        QOLA_LAUNCH_SET(rotary_dim, p.hdim_q)
        QOLA_LAUNCH_SET(rotary_cos_ptr, memory(std::size_t{2} * ROWS * p.hdim_q))
        QOLA_LAUNCH_SET(rotary_sin_ptr, memory(std::size_t{2} * ROWS * p.hdim_q))
    }
}

/// Sets the arguments of an entry point as far as they have what is known.
template <class Args>
void fill(Args& args, const Problem& p, Memory& memory)
{
    const int rows           = p.group ? BATCH * ROWS : ROWS;
    const std::size_t scores = std::size_t{BATCH} * HEADS_Q * ROWS;
    const float scale        = 1.f / std::sqrt(static_cast<float>(p.hdim_q));
    const float p_drop       = p.dropout ? 0.5f : 0.f;

    QOLA_LAUNCH_SET(use_asm_v3, p.assembly)
    QOLA_LAUNCH_SET(how_v3_bf16_cvt, ROUNDING)
    QOLA_LAUNCH_SET(v3_bf16_cvt, ROUNDING)
    QOLA_LAUNCH_SET(v3_atomic_fp32, true)
    QOLA_LAUNCH_SET(data_type, p.dtype)
    QOLA_LAUNCH_SET(is_group_mode, p.group)
    QOLA_LAUNCH_SET(mask_type, p.mask)
    QOLA_LAUNCH_SET(bias_type, p.bias)
    QOLA_LAUNCH_SET(has_lse, p.lse)
    QOLA_LAUNCH_SET(has_dbias, p.dbias)
    QOLA_LAUNCH_SET(has_dropout, p.dropout)
    QOLA_LAUNCH_SET(is_deterministic, p.deterministic)
    QOLA_LAUNCH_SET(has_sink, p.sink)

    QOLA_LAUNCH_SET(hdim_q, p.hdim_q)
    QOLA_LAUNCH_SET(hdim_v, p.hdim_v)
    QOLA_LAUNCH_SET(batch, BATCH)
    QOLA_LAUNCH_SET(nhead_q, HEADS_Q)
    QOLA_LAUNCH_SET(nhead_k, HEADS_K)
    QOLA_LAUNCH_SET(seqlen_q, rows)
    QOLA_LAUNCH_SET(seqlen_k, rows)
    QOLA_LAUNCH_SET(max_seqlen_q, ROWS)
    QOLA_LAUNCH_SET(max_seqlen_k, ROWS)
    QOLA_LAUNCH_SET(logits_soft_cap, p.logits ? 30 : 0)
    QOLA_LAUNCH_SET(min_seqlen_q, p.skip ? 1 : 0)
    QOLA_LAUNCH_SET(window_size_left, -1)
    QOLA_LAUNCH_SET(window_size_right, p.mask ? 0 : -1)
    QOLA_LAUNCH_SET(scale, scale)
    QOLA_LAUNCH_SET(scale_s, scale)
    QOLA_LAUNCH_SET(scale_p, 1)
    QOLA_LAUNCH_SET(scale_o, 1)
    QOLA_LAUNCH_SET(p_drop, p_drop)
    QOLA_LAUNCH_SET(p_undrop, 1.f - p_drop)
    if constexpr(requires { args.drop_seed_offset; })
        args.drop_seed_offset = std::pair<std::uint64_t, std::uint64_t>(1, 2);

    QOLA_LAUNCH_TENSOR(q, HEADS_Q, p.hdim_q)
    QOLA_LAUNCH_TENSOR(k, HEADS_K, p.hdim_q)
    QOLA_LAUNCH_TENSOR(v, HEADS_K, p.hdim_v)
    QOLA_LAUNCH_TENSOR(o, HEADS_Q, p.hdim_v)
    QOLA_LAUNCH_TENSOR(do, HEADS_Q, p.hdim_v)
    QOLA_LAUNCH_TENSOR(dq, HEADS_Q, p.hdim_q)
    // One head of K and V for each of Q: the caller sums them up.
    QOLA_LAUNCH_TENSOR(dk, HEADS_Q, p.hdim_q)
    QOLA_LAUNCH_TENSOR(dv, HEADS_Q, p.hdim_v)
    if(p.bias)
        QOLA_LAUNCH_SET(bias_ptr, memory(4 * scores * ROWS))
    if(p.bias == 1)
    {
        QOLA_LAUNCH_SCORES(bias, ROWS)
    }
    if(p.dbias)
    {
        QOLA_LAUNCH_SET(dbias_ptr, memory(4 * scores * ROWS))
        QOLA_LAUNCH_SCORES(dbias, ROWS)
    }
    // The backward always reads it.
    if(p.lse || requires { args.do_ptr; })
        QOLA_LAUNCH_SET(lse_ptr, memory(4 * scores))
    QOLA_LAUNCH_SCORES(lse, 1)
    QOLA_LAUNCH_SCORES(lsed, 1)
    QOLA_LAUNCH_SET(d_ptr, memory(4 * scores))
    if(p.sink)
        QOLA_LAUNCH_SET(sink_ptr, memory(4 * HEADS_Q))
    if(p.group)
    {
        QOLA_LAUNCH_SET(seqstart_q_ptr, memory.offsets(BATCH + 1, ROWS))
        QOLA_LAUNCH_SET(seqstart_k_ptr, memory.offsets(BATCH + 1, ROWS))
    }

    // What a backward sums dQ up in: head after head, as assembly kernels have it, and for each
    // split of K where the order is fixed; 16 rows make the most splits.
    const std::size_t accumulators = scores * p.hdim_q;
    QOLA_LAUNCH_SET(dq_acc_ptr, memory(4 * accumulators * (ROWS / 16)))
    QOLA_LAUNCH_SET(stride_dq_acc, p.hdim_q)
    QOLA_LAUNCH_SET(nhead_stride_dq_acc, rows * p.hdim_q)
    QOLA_LAUNCH_SET(batch_stride_dq_acc, p.group ? 0 : HEADS_Q * ROWS * p.hdim_q)
    QOLA_LAUNCH_SET(split_stride_dq_acc, accumulators)
    if constexpr(requires { args.workspace_alloc; })
        args.workspace_alloc = [&memory](std::size_t bytes, bool) { return memory(bytes); };
    if constexpr(requires { args.pinned_host_alloc; })
        args.pinned_host_alloc = [](std::size_t bytes) {
            return std::shared_ptr<void>(std::malloc(bytes), std::free);
        };

    // Splits of K and V.
    QOLA_LAUNCH_SET(num_splits, SPLITS)
    QOLA_LAUNCH_SET(lse_acc_ptr, memory(4 * scores * SPLITS))
    QOLA_LAUNCH_SET(o_acc_ptr, memory(4 * scores * SPLITS * p.hdim_v))
    QOLA_LAUNCH_SCORES(lse_acc, 1)
    QOLA_LAUNCH_SCORES(o_acc, p.hdim_v)
    QOLA_LAUNCH_SET(stride_o_acc, p.hdim_v)
    QOLA_LAUNCH_SET(split_stride_lse_acc, scores)
    QOLA_LAUNCH_SET(split_stride_o_acc, scores * p.hdim_v)
    fill_cache(args, p, memory);
}

#undef QOLA_LAUNCH_SCORES
#undef QOLA_LAUNCH_TENSOR
#undef QOLA_LAUNCH_SET

/// The arguments that an entry point takes first.
template <class Args, class... More>
Args arguments_of(float (*)(const Args&, More...));

/// An entry point with values for its parameters.
using Call = std::function<float(const Problem&, Memory&, hipStream_t)>;

inline Problem read(const std::string& line)
{
    std::map<std::string, std::string> values;
    std::istringstream words(line);
    for(std::string word; words >> word;)
        values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    const auto number = [&](const char* key) { return std::stoi(values.at(key)); };

    Problem p;
    p.entry         = values.at("entry");
    p.dtype         = values.at("dtype");
    p.hdim_q        = number("hdim_q");
    p.hdim_v        = number("hdim_v");
    p.mask          = number("mask");
    p.bias          = number("bias");
    p.group         = number("group");
    p.lse           = number("lse");
    p.dropout       = number("dropout");
    p.dbias         = number("dbias");
    p.deterministic = number("deterministic");
    p.logits        = number("logits");
    p.skip          = number("skip");
    p.sink          = number("sink");
    p.pages         = number("pages");
    p.rope          = number("rope");
    p.assembly      = number("assembly");
    return p;
}

/// Calls what each line of a table names, line n (from 1) on the n-th stream that the program
/// makes, and prints its status.
inline int run(const char* table, const std::map<std::string, Call>& calls)
{
    std::ifstream lines(table);
    for(std::string line; std::getline(lines, line);)
    {
        const Problem problem = read(line);
        Memory memory;
        hipStream_t stream = nullptr;
        check(hipStreamCreate(&stream), "hipStreamCreate");
        const float status = calls.at(problem.entry)(problem, memory, stream);
        // On a line of its own: AITER writes to standard output as well.
        std::printf("\nqola_launch %g\n", static_cast<double>(status));
        std::fflush(stdout);
    }
    return 0;
}

} // namespace qola_launch

#endif // QOLA_LAUNCH_H
