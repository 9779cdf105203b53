// One query for each of a few sequences: K and V in splits, so that the GPU has enough to do.
//
//   c++ -std=c++17 -D__HIP_PLATFORM_AMD__=1 -I<bundle>/include decode.cpp <bundle>/lib/<ns>_libmha_fwd.so -lamdhip64
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
    constexpr int sequences = 2, heads = 8, heads_k = 2, hdim = 32, columns = 1000 + 3000;
    constexpr std::int32_t of_q[sequences + 1] = {0, 1, 2}, of_k[sequences + 1] = {0, 1000, columns};
    constexpr std::size_t element = 2; // of fp16
    try
    {
        const Memory q(sequences * heads * hdim * element), o(sequences * heads * hdim * element);
        const Memory k(columns * heads_k * hdim * element), v(columns * heads_k * hdim * element);
        const Memory starts_q(sizeof of_q), starts_k(sizeof of_k);
        check(hipMemcpy(starts_q.get(), of_q, sizeof of_q, hipMemcpyHostToDevice), "hipMemcpy");
        check(hipMemcpy(starts_k.get(), of_k, sizeof of_k, hipMemcpyHostToDevice), "hipMemcpy");

        fmha::Problem problem;
        problem.dtype(QOLA_FP16).heads(heads, heads_k).hdim(hdim);
        problem.group(sequences, {starts_q.get(), starts_k.get()}, {sequences, columns}, {1, 3000});
        problem.q(fmha::bshd(q.get(), 1, heads, hdim, true)).o(fmha::bshd(o.get(), 1, heads, hdim, true));
        problem.k(fmha::bshd(k.get(), 1, heads_k, hdim, true)).v(fmha::bshd(v.get(), 1, heads_k, hdim, true));

        const fmha::Dispatcher decode(fmha::split_kv());
        for(const int splits : {2, 8})
        {
            const fmha::Found found = decode.find(problem.num_splits(splits));
            std::cout << splits << " splits: " << found.workspace << " bytes of workspace\n";
            for(const fmha::Stage& stage : found.stages)
                std::cout << stage.name << '\n';
            const Memory workspace(found.workspace);
            decode.launch(problem.workspace(workspace.get(), found.workspace));
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
