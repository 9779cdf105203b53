// Forward over sequences of different lengths, one behind the other, with grouped queries.
//
//   c++ -std=c++17 -D__HIP_PLATFORM_AMD__=1 -I<bundle>/include varlen.cpp <bundle>/lib/<ns>_libmha_fwd.so -lamdhip64
#include <cstdint>
#include <iostream>

#include "memory.h"
#include "qola_fmha.hpp"

#ifdef QOLA_NAMESPACE
namespace fmha = qola::QOLA_NAMESPACE::fmha;
#else
namespace fmha = qola::fmha;
#endif

int main()
{
    constexpr int sequences = 3, heads = 8, heads_k = 2, hdim = 128, longest = 300, rows = 100 + 17 + longest;
    constexpr std::int32_t lengths[sequences + 1] = {0, 100, 117, rows};
    constexpr std::size_t element = 2; // of bf16
    try
    {
        const Memory q(rows * heads * hdim * element), o(rows * heads * hdim * element);
        const Memory k(rows * heads_k * hdim * element), v(rows * heads_k * hdim * element);
        const Memory starts(sizeof lengths), lse(heads * rows * sizeof(float));
        check(hipMemcpy(starts.get(), lengths, sizeof lengths, hipMemcpyHostToDevice), "hipMemcpy");

        fmha::Problem problem;
        problem.dtype(QOLA_BF16).heads(heads, heads_k).hdim(hdim);
        problem.group(sequences, {starts.get(), starts.get()}, {rows, rows}, {longest, longest});
        problem.q(fmha::bshd(q.get(), rows, heads, hdim, true)).o(fmha::bshd(o.get(), rows, heads, hdim, true));
        problem.k(fmha::bshd(k.get(), rows, heads_k, hdim, true)).v(fmha::bshd(v.get(), rows, heads_k, hdim, true));
        problem.lse(fmha::of_rows(lse.get(), rows, heads, true));

        const fmha::Dispatcher forward(fmha::forward());
        for(const bool assembly : {true, false})
        {
            if(!assembly)
                problem.composable_kernel_only();
            const fmha::Found found = forward.find(problem);
            if(!found)
                continue;
            std::cout << (found.assembly() ? "assembly " : "") << found.name() << '\n';
            const Memory workspace(found.workspace);
            forward.launch(problem.workspace(workspace.get(), found.workspace));
            check(hipDeviceSynchronize(), "hipDeviceSynchronize");
            problem.workspace(nullptr, 0);
        }
    }
    catch(const std::exception& error)
    {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
