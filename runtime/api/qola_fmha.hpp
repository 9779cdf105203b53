// A header-only C++17 wrapper around the C API in qola_c.h: a Problem, and a Dispatcher that finds and launches
// its kernels.
//
// It uses no types of HIP, AITER or Composable Kernel. The namespace is qola::<namespace>::fmha, so a program can
// use the libraries of two manifests.
#ifndef QOLA_FMHA_HPP
#define QOLA_FMHA_HPP

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "qola_c.h"

#ifdef QOLA_NAMESPACE
namespace qola::QOLA_NAMESPACE::fmha {
#else
namespace qola::fmha {
#endif

// A contiguous tensor [batch, row, head, dim], or [row, head, dim] for concatenated sequences.
inline qola_tensor bshd(void* data, std::int64_t rows, std::int64_t heads, std::int64_t hdim, bool group = false)
{
    return {data, group ? 0 : rows * heads * hdim, hdim, heads * hdim};
}

// A contiguous tensor [batch, head, row, dim].
inline qola_tensor bhsd(void* data, std::int64_t rows, std::int64_t heads, std::int64_t hdim)
{
    return {data, heads * rows * hdim, rows * hdim, hdim};
}

// LSE [batch, head, row], or [head, row] for concatenated sequences.
inline qola_tensor of_rows(void* data, std::int64_t rows, std::int64_t heads, bool group = false)
{
    return {data, group ? 0 : heads * rows, rows, 1};
}

// A problem, built step by step. Each function sets a part and returns the problem.
class Problem
{
public:
    Problem() { args_.struct_size = sizeof args_; }

    // Type of Q, K, V and O.
    Problem& dtype(qola_dtype value) { return set(args_.dtype, value); }
    // Heads of Q, and of K and V: the same number or a divisor.
    Problem& heads(std::int64_t q, std::int64_t k = 0)
    {
        args_.nhead_q = q;
        return set(args_.nhead_k, k == 0 ? q : k);
    }
    // Head dimension of Q and K, and of V and O, by default the same.
    Problem& hdim(std::int64_t q, std::int64_t v = 0)
    {
        args_.hdim_q = q;
        return set(args_.hdim_v, v == 0 ? q : v);
    }
    // Sequences of equal length.
    Problem& lengths(std::int64_t batch, std::int64_t seqlen_q, std::int64_t seqlen_k)
    {
        args_.batch    = batch;
        args_.seqlen_q = args_.max_seqlen_q = seqlen_q;
        args_.seqlen_k = args_.max_seqlen_k = seqlen_k;
        return *this;
    }
    // Concatenated sequences. `starts` are int32_t[batch + 1] in device memory, `sums` and `longest` the sums and
    // maxima of the lengths; each is a pair for Q and K.
    Problem& group(std::int64_t batch,
                   std::pair<const void*, const void*> starts,
                   std::pair<std::int64_t, std::int64_t> sums,
                   std::pair<std::int64_t, std::int64_t> longest)
    {
        args_.group      = 1;
        args_.batch      = batch;
        args_.seqstart_q = starts.first;
        args_.seqstart_k = starts.second;
        args_.seqlen_q   = sums.first;
        args_.seqlen_k   = sums.second;
        args_.max_seqlen_q = longest.first;
        args_.max_seqlen_k = longest.second;
        return *this;
    }
    // Factor of the scores, by default 1 / sqrt(hdim).
    Problem& scale(float value) { return set(args_.scale, value); }
    Problem& causal(bool bottom_right = true)
    {
        return set(args_.mask, bottom_right ? QOLA_MASK_CAUSAL_BOTTOM_RIGHT : QOLA_MASK_CAUSAL_TOP_LEFT);
    }
    // Shows `left` keys before the diagonal and `right` after it; -1 shows all.
    Problem& window(std::int64_t left, std::int64_t right, bool bottom_right = true)
    {
        args_.window_left  = left;
        args_.window_right = right;
        return set(args_.mask, bottom_right ? QOLA_MASK_WINDOW_BOTTOM_RIGHT : QOLA_MASK_WINDOW_TOP_LEFT);
    }
    // Added to the scores.
    Problem& bias(const qola_tensor& tensor)
    {
        args_.bias_type = QOLA_BIAS_ELEMENTWISE;
        return set(args_.bias, tensor);
    }
    // Float slopes per head of Q, or per sequence and head. Set the heads before.
    Problem& alibi(void* slopes, bool batched = false)
    {
        args_.bias_type = QOLA_BIAS_ALIBI;
        return set(args_.bias, qola_tensor{slopes, batched ? args_.nhead_q : 0, 0, 0});
    }
    Problem& logits_soft_cap(float value) { return set(args_.logits_soft_cap, value); }
    Problem& dropout(float probability, std::uint64_t seed, std::uint64_t offset)
    {
        args_.drop_seed   = seed;
        args_.drop_offset = offset;
        return set(args_.dropout, probability);
    }
    // Forward skips sequences with fewer rows.
    Problem& min_seqlen_q(std::int64_t value) { return set(args_.min_seqlen_q, value); }
    // Float scores, one per head of Q, that the softmax includes.
    Problem& sink(const void* scores) { return set(args_.sink, scores); }
    // Backward: the same bits on every run.
    Problem& deterministic() { return set(args_.deterministic, 1); }
    // No assembly kernels.
    Problem& composable_kernel_only() { return set(args_.kernels, QOLA_KERNELS_CK); }
    Problem& rounding(qola_rounding value) { return set(args_.rounding, value); }
    // Split-KV: number of parts of K and V.
    Problem& num_splits(std::int64_t count) { return set(args_.num_splits, count); }
    // K and V in pages of `size` rows; int32_t[batch, width] holds the page numbers.
    Problem& pages(const void* table, std::int64_t width, std::int64_t rows)
    {
        args_.block_table_stride = width;
        args_.page_size          = rows;
        return set(args_.block_table, table);
    }

    // Append-KV: number of rows per sequence to append after the int32_t[batch] existing ones.
    Problem& append(const qola_tensor& k, const qola_tensor& v, std::int64_t rows, const void* behind)
    {
        set(args_.k_new, k).set(args_.v_new, v).set(args_.seqlen_new, rows);
        return set(args_.seqlens_k, behind);
    }
    // Append-KV rotates the first `dim` dimensions of the new rows of K and of Q.
    Problem& rope(qola_rope kind, std::int32_t dims, const void* cos, const void* sin)
    {
        set(args_.rope, kind).set(args_.rotary_dim, dims);
        return set(args_.rotary_cos, cos).set(args_.rotary_sin, sin);
    }

    Problem& q(const qola_tensor& tensor) { return set(args_.q, tensor); }
    Problem& k(const qola_tensor& tensor) { return set(args_.k, tensor); }
    Problem& v(const qola_tensor& tensor) { return set(args_.v, tensor); }
    Problem& o(const qola_tensor& tensor) { return set(args_.o, tensor); }
    // The forward writes it if set; the backward reads it.
    Problem& lse(const qola_tensor& tensor) { return set(args_.lse, tensor); }
    Problem& d_o(const qola_tensor& tensor) { return set(args_.d_o, tensor); }
    Problem& dq(const qola_tensor& tensor) { return set(args_.dq, tensor); }
    // dk and dv have as many heads as Q.
    Problem& dk(const qola_tensor& tensor) { return set(args_.dk, tensor); }
    Problem& dv(const qola_tensor& tensor) { return set(args_.dv, tensor); }
    Problem& d_bias(const qola_tensor& tensor) { return set(args_.d_bias, tensor); }
    // Device memory for the launch; Found has the required size.
    Problem& workspace(void* memory, std::uint64_t bytes)
    {
        args_.workspace = memory;
        return set(args_.workspace_size, bytes);
    }

    // The C structure, for fields without a function here.
    qola_mha_args& args() { return args_; }
    const qola_mha_args& args() const { return args_; }

private:
    template <class Field, class Value>
    Problem& set(Field& field, const Value& value)
    {
        field = value;
        return *this;
    }

    qola_mha_args args_{};
};

// A failed call: a status of qola_c.h and the library's message.
class Error : public std::runtime_error
{
public:
    Error(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
    int status() const { return status_; }

private:
    int status_;
};

struct Stage
{
    std::string name; // lazy library: the kernel instance, else the GPU function
    bool assembly;
};

// The kernels of a launch; empty if no kernel serves the problem.
struct Found
{
    std::vector<Stage> stages; // in launch order
    std::size_t main        = 0; // index of the main kernel; helper kernels run before and after it
    std::uint64_t workspace = 0; // required bytes of device memory

    explicit operator bool() const { return !stages.empty(); }
    const std::string& name() const { return stages.at(main).name; }
    bool assembly() const { return stages.at(main).assembly; }
};

// The functions of an entry point.
struct Entry
{
    const char* name;
    std::size_t main; // index of its main stage, see Found
    int (*launch)(const qola_mha_args*, void*);
    int (*find)(const qola_mha_args*, qola_found*);
    int (*prepare)(const qola_mha_args*);
    std::size_t (*kernel_count)();
    const char* (*kernel_name)(std::size_t);
    const char* (*status_string)(int);
    const char* (*last_error)();
};

#define QOLA_FMHA_ENTRY(function, entry, main)             \
    inline Entry function()                                \
    {                                                      \
        return {#entry, main,                              \
                QOLA_C(entry), QOLA_C(entry##_find), QOLA_C(entry##_prepare), \
                QOLA_C(entry##_kernel_count), QOLA_C(entry##_kernel_name), \
                QOLA_C(entry##_status_string), QOLA_C(entry##_last_error)}; \
    }
#ifdef QOLA_MHA_FWD_PARAMETERS
QOLA_FMHA_ENTRY(forward, mha_fwd, 0)
#endif
#ifdef QOLA_MHA_FWD_SPLITKV_PARAMETERS
QOLA_FMHA_ENTRY(split_kv, mha_fwd_splitkv, 0)
#endif
#ifdef QOLA_MHA_BATCH_PREFILL_PARAMETERS
QOLA_FMHA_ENTRY(batch_prefill, mha_batch_prefill, 0)
#endif
#ifdef QOLA_MHA_FWD_PAGEDKV_PARAMETERS
QOLA_FMHA_ENTRY(paged_kv, mha_fwd_pagedkv, 0)
#endif
#ifdef QOLA_MHA_FWD_APPENDKV_PARAMETERS
QOLA_FMHA_ENTRY(append_kv, mha_fwd_appendkv, 0)
#endif
#ifdef QOLA_MHA_BWD_PARAMETERS
QOLA_FMHA_ENTRY(backward, mha_bwd, 1)
#endif
#undef QOLA_FMHA_ENTRY

// An entry point of a library. Thread-safe; needs a current device.
class Dispatcher
{
public:
    explicit Dispatcher(const Entry& entry) : entry_(entry) {}

    // Finds the kernels of a problem without launching them. Tensors need no data: only the presence of LSE, a
    // bias and so on matters.
    Found find(const Problem& problem) const
    {
        qola_found found{};
        found.struct_size = sizeof found;
        const int status  = entry_.find(&problem.args(), &found);
        if(status == QOLA_NO_KERNEL)
            return {};
        check(status);
        Found result;
        result.main      = entry_.main < found.stage_count ? entry_.main : 0;
        result.workspace = found.workspace_size;
        for(std::uint32_t n = 0; n < found.stage_count && n < QOLA_MAX_STAGES; ++n)
        {
            const qola_stage& stage = found.stages[n];
            const char* name        = stage.kernel != nullptr ? stage.kernel : stage.symbol;
            result.stages.push_back({name != nullptr ? name : "", stage.assembly != 0});
        }
        return result;
    }

    // Launches a problem on a hipStream_t; null is the default stream.
    void launch(const Problem& problem, void* stream = nullptr) const
    {
        check(entry_.launch(&problem.args(), stream));
    }

    // Lazy library: loads the problem's kernels before its first launch.
    void prepare(const Problem& problem) const { check(entry_.prepare(&problem.args())); }

    // Calls a function with the name of each kernel.
    template <class Function>
    void for_each_kernel(Function&& function) const
    {
        for(std::size_t n = 0; n < entry_.kernel_count(); ++n)
            function(entry_.kernel_name(n));
    }

    // {"entry": ..., "kernels": [...]}. Names need no escapes.
    std::string to_json() const
    {
        std::string text = std::string("{\"entry\": \"") + entry_.name + "\", \"kernels\": [";
        const char* next = "";
        for_each_kernel([&](const char* name) {
            text += std::string(next) + "\"" + name + "\"";
            next = ", ";
        });
        return text + "]}";
    }

private:
    void check(int status) const
    {
        if(status == QOLA_OK)
            return;
        const std::string means = entry_.status_string(status), said = entry_.last_error();
        throw Error(status, std::string(entry_.name) + ": " + means + (said == means ? "" : ": " + said));
    }

    Entry entry_;
};

} // namespace

#endif // QOLA_FMHA_HPP
