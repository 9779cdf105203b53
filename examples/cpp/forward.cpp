// Attention forward: grouped queries, a causal mask, LSE for a later backward.
//
//   c++ -std=c++17 -D__HIP_PLATFORM_AMD__=1 -I<bundle>/include forward.cpp <bundle>/lib/<ns>_libmha_fwd.so -lamdhip64
#include <cstdlib>
#include <iostream>

#include "memory.h"
#include "qola_fmha.hpp"

#ifdef QOLA_NAMESPACE
namespace fmha = qola::QOLA_NAMESPACE::fmha;
#else
namespace fmha = qola::fmha;
#endif

int main(int count, char** words)
{
    const bool causal        = count > 1 && std::string(words[1]) == "causal";
    constexpr int batch      = 2, heads = 8, heads_k = 2, rows = 200, columns = 300, hdim = 32;
    constexpr std::size_t element = 2; // of fp16
    try
    {
        const Memory q(batch * rows * heads * hdim * element), o(batch * rows * heads * hdim * element);
        const Memory k(batch * columns * heads_k * hdim * element), v(batch * columns * heads_k * hdim * element);
        const Memory lse(batch * heads * rows * sizeof(float));

        fmha::Problem problem;
        problem.dtype(QOLA_FP16).lengths(batch, rows, columns).heads(heads, heads_k).hdim(hdim);
        problem.q(fmha::bshd(q.get(), rows, heads, hdim)).o(fmha::bshd(o.get(), rows, heads, hdim));
        problem.k(fmha::bshd(k.get(), columns, heads_k, hdim)).v(fmha::bshd(v.get(), columns, heads_k, hdim));
        problem.lse(fmha::of_rows(lse.get(), rows, heads));
        if(causal)
            problem.causal();

        const fmha::Dispatcher forward(fmha::forward());
        const fmha::Found found = forward.find(problem);
        if(!found)
        {
            std::cout << "no kernel\n";
            return 0;
        }
        std::cout << found.stages.size() << " kernel: " << found.name() << '\n';
        const Memory workspace(found.workspace);
        forward.launch(problem.workspace(workspace.get(), found.workspace));
        check(hipDeviceSynchronize(), "hipDeviceSynchronize");
        std::cout << "done\n";
    }
    catch(const std::exception& error)
    {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
