// Which kind of kernels serves problems, in orders: a line for each, "<name>: <kind>, <kernel>".
// Arguments: nothing, or "launch" to launch each problem, too.
#include "qola_order.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

namespace fmha = qola::order::fmha;
using fmha::Direction;
using fmha::Kind;

namespace {

alignas(16) char memory[1024];
constexpr std::int64_t heads = 4, hdim = 128, rows = 300;

const char* name_of(Kind kind)
{
    return kind == Kind::assembly ? "assembly" : kind == Kind::triton ? "triton" : "composable_kernel";
}

/// Three sequences, of 100 rows and columns each.
fmha::Problem forward()
{
    fmha::Problem problem;
    problem.dtype(QOLA_BF16).heads(heads).hdim(hdim);
    problem.group(3, {memory, memory}, {rows, rows}, {100, 100});
    const qola_tensor tensor = fmha::bshd(memory, rows, heads, hdim, true);
    problem.q(tensor).k(tensor).v(tensor).o(tensor).lse(fmha::of_rows(memory, rows, heads, true));
    return problem;
}

fmha::Problem backward()
{
    fmha::Problem problem = forward();
    const qola_tensor tensor = problem.args().q;
    return problem.d_o(tensor).dq(tensor).dk(tensor).dv(tensor);
}

void tell(const char* name, const fmha::Ordered& ordered, const fmha::Problem& problem)
{
    try
    {
        const std::optional<fmha::Served> served = ordered.find(problem);
        if(served)
            std::printf("%s: %s, %s, %llu\n", name, name_of(served->kind), served->found.name().c_str(),
                        static_cast<unsigned long long>(served->found.workspace));
        else
            std::printf("%s: none\n", name);
    }
    catch(const fmha::Error& error)
    {
        std::printf("%s: %d, %s\n", name, error.status(), error.what());
    }
}

void launch(const char* name, const fmha::Ordered& ordered, const fmha::Problem& problem)
{
    try
    {
        std::printf("%s: %s\n", name, name_of(ordered.launch(problem)));
    }
    catch(const fmha::Error& error)
    {
        std::printf("%s: %d, %s\n", name, error.status(), error.what());
    }
    std::fflush(stdout);
}

} // namespace

int main(int count, char**)
{
    const fmha::Ordered of_manifest(Direction::forward);
    const fmha::Ordered usual(Direction::forward, {Kind::assembly, Kind::composable_kernel, Kind::triton});
    const fmha::Ordered no_assembly(Direction::forward, {Kind::composable_kernel, Kind::triton});
    const fmha::Ordered in_triton(Direction::forward, {Kind::triton});
    const fmha::Ordered back(Direction::backward);
    fmha::Problem gaps = forward(), uneven = forward();
    gaps.args().lse.stride_row = 2;
    uneven.heads(heads, heads - 1);
    fmha::Problem no_lse = forward(), dropped = forward(), small = forward(), soft = forward(), odd = forward();
    no_lse.lse({});
    dropped.dropout(0.5, 1, 2);
    small.hdim(64);
    soft.logits_soft_cap(30);
    qola_tensor strided = odd.args().q;
    strided.stride_row += 4;
    odd.q(strided);
    fmha::Problem shared = backward();
    shared.heads(heads, heads / 2);
    if(count > 1)
    {
        launch("of_manifest", of_manifest, forward());
        launch("usual", usual, forward());
        launch("no_assembly", no_assembly, forward());
        launch("soft_cap", in_triton, soft);
        launch("no_workspace", back, backward());
        static char workspace[heads * rows * sizeof(float)];
        launch("backward", back, backward().workspace(workspace, sizeof workspace));
        fmha::Problem no_starts = forward();
        no_starts.args().seqstart_k = nullptr;
        launch("no_starts", in_triton, no_starts);
        return 0;
    }
    tell("of_manifest", of_manifest, forward());
    tell("usual", usual, forward());
    tell("no_assembly", no_assembly, forward());
    tell("ck_alone", usual, forward().composable_kernel_only());
    tell("no_lse", in_triton, no_lse);
    tell("dropout", in_triton, dropped);
    tell("hdim_64", in_triton, small);
    tell("soft_cap", in_triton, soft);
    tell("odd_stride", in_triton, odd);
    tell("odd_stride_elsewhere", of_manifest, odd);
    tell("gaps_in_lse", in_triton, gaps);
    tell("uneven_heads", in_triton, uneven);
    tell("backward", back, backward());
    tell("shared_heads", back, shared);
}
