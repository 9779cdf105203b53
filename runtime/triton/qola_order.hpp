// Dispatches an attention problem to assembly kernels, Composable Kernel or kernels in Triton, in the order of the
// manifest's [order] or of the program. A header-only C++17 wrapper around qola_c.h and qola_triton.h.
//
// The first kind with a kernel serves the problem. Problems that Triton's kernels compute differently never go to
// them: see `in_triton`.
#ifndef QOLA_ORDER_HPP
#define QOLA_ORDER_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qola_fmha.hpp"
#include "qola_triton.h"

#ifdef QOLA_NAMESPACE
namespace qola::QOLA_NAMESPACE::fmha {
#else
namespace qola::fmha {
#endif

enum class Kind
{
    assembly,          // AITER's own (v3)
    composable_kernel,
    triton
};

enum class Direction
{
    forward, // mha_fwd
    backward // mha_bwd
};

// The manifest's order; qola_config.h defines changes to the default.
inline std::vector<Kind> order_of(Direction direction)
{
#ifndef QOLA_ORDER_FORWARD
#define QOLA_ORDER_FORWARD Kind::assembly, Kind::composable_kernel, Kind::triton
#endif
#ifndef QOLA_ORDER_BACKWARD
#define QOLA_ORDER_BACKWARD Kind::assembly, Kind::composable_kernel, Kind::triton
#endif
    if(direction == Direction::forward)
        return {QOLA_ORDER_FORWARD};
    return {QOLA_ORDER_BACKWARD};
}

namespace detail {

// Returns whether Triton's kernels support, or can ignore, every set field of a problem.
inline bool triton_has_all(bool backward, const qola_mha_args& args)
{
    qola_mha_args left = args;
    const auto taken   = [&](auto... field) { ((left.*field = {}), ...); };
    using Args         = qola_mha_args;
    taken(&Args::struct_size, &Args::dtype, &Args::mask, &Args::bias_type, &Args::group, &Args::rounding);
    taken(&Args::deterministic, &Args::batch, &Args::nhead_q, &Args::nhead_k, &Args::seqlen_q, &Args::seqlen_k);
    taken(&Args::max_seqlen_q, &Args::max_seqlen_k, &Args::hdim_q, &Args::hdim_v, &Args::scale);
    taken(&Args::q, &Args::k, &Args::v, &Args::o, &Args::lse, &Args::bias, &Args::seqstart_q, &Args::seqstart_k);
    taken(&Args::workspace, &Args::workspace_size);
    if(backward)
        taken(&Args::d_o, &Args::dq, &Args::dk, &Args::dv);
    // Without dropout they have no effect.
    if(args.dropout == 0)
        taken(&Args::drop_seed, &Args::drop_offset);
    // AITER's values without a window and with one split.
    if(args.window_left == -1)
        left.window_left = 0;
    if(args.window_right == -1)
        left.window_right = 0;
    if(args.num_splits == 1)
        left.num_splits = 0;
    // The structure has no padding, so fields of later headers are not ignored.
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&left);
    return std::all_of(bytes, bytes + sizeof left, [](unsigned char byte) { return byte == 0; });
}

} // namespace detail

// Converts a problem for Triton's kernels; empty if they do not support it, or compute it differently from Composable
// Kernel, so that forward and backward of different kinds agree:
//   dropout: their random numbers differ;
//   a backward with fewer heads of K than of Q: dK and dV would have the heads of K, not those of Q;
//   the gradient of a bias: the caller would have to clear it;
//   a forward without LSE, which they always write.
// The backward uses a float per value of LSE, with its strides, at the start of the workspace. A bias or starts without
// data get an address that must not be read.
inline std::optional<qola_triton_attention> in_triton(Direction direction, const qola_mha_args& args)
{
    const bool backward = direction == Direction::backward;
    const auto fits     = [](auto... values) {
        return ((values >= 0 && values <= std::numeric_limits<std::int32_t>::max()) && ...);
    };
    const bool group = args.group != 0;
    if(!detail::triton_has_all(backward, args) || args.hdim_q != args.hdim_v || args.dtype > QOLA_BF16 ||
       args.mask > QOLA_MASK_CAUSAL_BOTTOM_RIGHT || args.bias_type > QOLA_BIAS_ELEMENTWISE ||
       !fits(args.batch, args.nhead_q, args.nhead_k, args.seqlen_q, args.seqlen_k, args.hdim_q) ||
       (group && !fits(args.max_seqlen_q - 1, args.max_seqlen_k)) ||
       (args.lse.stride_row != 0 && args.lse.stride_row != 1) ||
       (backward ? args.nhead_k != args.nhead_q : args.lse.data == nullptr))
        return std::nullopt;
    alignas(16) static const std::int32_t none = 0;
    const auto number              = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
    qola_triton_attention found    = {};
    found.size    = sizeof found;
    found.dtype   = args.dtype;
    found.causal  = args.mask;
    found.hdim    = number(args.hdim_q);
    found.batch   = number(args.batch);
    found.heads   = number(args.nhead_q);
    found.heads_k = number(args.nhead_k);
    found.rows    = number(group ? args.max_seqlen_q : args.seqlen_q);
    // A forward in group mode may lack the longest length: the sum is an upper bound.
    found.columns = number(group && args.max_seqlen_k > 0 ? args.max_seqlen_k : args.seqlen_k);
    found.scale   = args.scale != 0 ? args.scale : 1 / std::sqrt(static_cast<float>(args.hdim_q));
    if(group)
    {
        const auto* const q = static_cast<const std::int32_t*>(args.seqstart_q);
        const auto* const k = static_cast<const std::int32_t*>(args.seqstart_k);
        found.starts_q      = q != nullptr ? q : &none;
        found.starts_k      = k != nullptr ? k : &none;
    }
    const auto take = [](const qola_tensor& tensor, auto& data, std::int64_t& batch, std::int64_t& head) {
        data  = tensor.data;
        batch = tensor.stride_batch;
        head  = tensor.stride_head;
        return tensor.stride_row;
    };
    found.q_row = take(args.q, found.q, found.q_batch, found.q_head);
    found.k_row = take(args.k, found.k, found.k_batch, found.k_head);
    found.v_row = take(args.v, found.v, found.v_batch, found.v_head);
    found.o_row = take(args.o, found.o, found.o_batch, found.o_head);
    take(args.lse, found.lse, found.lse_batch, found.lse_head);
    if(args.bias_type == QOLA_BIAS_ELEMENTWISE)
    {
        found.bias_row = take(args.bias, found.bias, found.bias_batch, found.bias_head);
        found.bias     = found.bias != nullptr ? found.bias : &none;
    }
    if(!backward)
        return found;
    found.do_row = take(args.d_o, found.d_o, found.do_batch, found.do_head);
    found.dq_row = take(args.dq, found.dq, found.dq_batch, found.dq_head);
    found.dk_row = take(args.dk, found.dk, found.dk_batch, found.dk_head);
    found.dv_row = take(args.dv, found.dv, found.dv_batch, found.dv_head);
    found.delta  = args.workspace;
    return found;
}

// The kernels that serve a problem.
struct Served
{
    Kind kind;
    Found found;
};

// Dispatches to the kinds of a library and to Triton in an order. Kinds that the libraries lack, or that `order` omits,
// are skipped. Thread-safe; needs a current device.
class Ordered
{
public:
    explicit Ordered(Direction direction) : Ordered(direction, order_of(direction)) {}
    Ordered(Direction direction, std::vector<Kind> order) : direction_(direction), order_(std::move(order)) {}

    // Finds the kind and the kernels of a launch; empty if no kind serves the problem. See Dispatcher::find.
    std::optional<Served> find(const Problem& problem) const
    {
        for(const Kind kind : order_)
        {
            InTriton words;
            if(Found found = find(kind, problem, words))
                return Served{kind, std::move(found)};
        }
        return std::nullopt;
    }

    // Launches a problem on a hipStream_t, and returns its kind. If a lazy library or a missing pack makes the kernel
    // unavailable, the next kind that serves the problem is used. Throws Error.
    Kind launch(const Problem& problem, void* stream = nullptr) const
    {
        int status = QOLA_NO_KERNEL;
        std::string said;
        for(const Kind kind : order_)
        {
            InTriton words;
            const Found found = find(kind, problem, words);
            if(!found)
                continue;
            if(found.workspace > problem.args().workspace_size)
                throw Error(QOLA_INVALID, "workspace_size: fewer than " + std::to_string(found.workspace) + " bytes");
            status = launch(kind, problem, words, stream, said);
            if(status == QOLA_OK)
                return kind;
            if(status != QOLA_UNAVAILABLE)
                break;
        }
        throw Error(status, status == QOLA_NO_KERNEL ? "no kernel of any kind serves the problem" : said);
    }

private:
    using InTriton = std::optional<qola_triton_attention>;

    // Sets `words` to the converted problem if Triton's kernels are queried.
    Found find(Kind kind, const Problem& problem, InTriton& words) const
    {
        if(kind == Kind::triton)
            return find_in_triton(problem, words = in_triton(direction_, problem.args()));
        const std::optional<Entry> entry = entry_of(direction_);
        const bool no_assembly           = problem.args().kernels == QOLA_KERNELS_CK;
        if(!entry || (kind == Kind::assembly && no_assembly))
            return {};
        try
        {
            Found found = Dispatcher(*entry).find(of_kind(kind, problem));
            return kind == Kind::assembly && found && !found.assembly() ? Found{} : found;
        }
        catch(const Error& error)
        {
            // Another kind may support the field, or have code for this device.
            if(error.status() == QOLA_UNSUPPORTED || error.status() == QOLA_NO_ARCH)
                return {};
            throw;
        }
    }

    int launch(Kind kind, const Problem& problem, const InTriton& words, void* stream, std::string& said) const
    {
        if(kind == Kind::triton)
        {
            const qola_mha_args& args = problem.args();
            const auto* given         = &*words;
            const bool starts         = args.seqstart_q != nullptr && args.seqstart_k != nullptr;
            if((args.bias_type != QOLA_BIAS_NONE && args.bias.data == nullptr) || (args.group != 0 && !starts))
            {
                said = "bias, seqstart_q or seqstart_k: null";
                return QOLA_INVALID;
            }
            const int status  = direction_ == Direction::forward ? QOLA_TRITON(attention_forward)(given, stream)
                                                                 : QOLA_TRITON(attention_backward)(given, stream);
            said = QOLA_TRITON(last_error)();
            return status;
        }
        const Problem own = of_kind(kind, problem);
        const Entry entry = *entry_of(direction_);
        const int status  = entry.launch(&own.args(), stream);
        said              = status == QOLA_OK ? "" : entry.last_error();
        return status;
    }

    static Problem of_kind(Kind kind, Problem problem)
    {
        return kind == Kind::composable_kernel ? problem.composable_kernel_only() : problem;
    }

    Found find_in_triton(const Problem& problem, const InTriton& words) const
    {
        if(!words)
            return {};
        qola_triton_found found = {};
        found.size              = sizeof found;
        const bool forward      = direction_ == Direction::forward;
        const int status = forward ? QOLA_TRITON(attention_forward_find)(&*words, &found)
                                   : QOLA_TRITON(attention_backward_find)(&*words, &found);
        // Includes strides that are not multiples of 8, and missing code for this device.
        if(status == QOLA_TRITON_NO_KERNEL || status == QOLA_TRITON_NO_ARCH)
            return {};
        if(status != QOLA_TRITON_OK)
            throw Error(status, QOLA_TRITON(last_error)());
        Found result;
        result.stages.push_back({found.name, false});
        const qola_mha_args& args = problem.args();
        if(!forward)
            result.workspace = sizeof(float) * static_cast<std::uint64_t>((args.batch - 1) * args.lse.stride_batch +
                                                                          (args.nhead_q - 1) * args.lse.stride_head +
                                                                          args.seqlen_q);
        return result;
    }

    static std::optional<Entry> entry_of(Direction direction)
    {
#ifdef QOLA_MHA_FWD_PARAMETERS
        if(direction == Direction::forward)
            return forward();
#endif
#ifdef QOLA_MHA_BWD_PARAMETERS
        if(direction == Direction::backward)
            return backward();
#endif
        static_cast<void>(direction);
        return std::nullopt;
    }

    Direction direction_;
    std::vector<Kind> order_;
};

} // namespace

#endif // QOLA_ORDER_HPP
