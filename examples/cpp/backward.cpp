// Attention backward in its stages, with the workspace that they need.
//
//   c++ -std=c++17 -D__HIP_PLATFORM_AMD__=1 -I<bundle>/include backward.cpp <bundle>/lib/<ns>_libmha_bwd.so -lamdhip64
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
    constexpr int batch = 1, heads = 4, rows = 100, hdim = 32;
    constexpr std::size_t bytes = std::size_t{batch} * rows * heads * hdim * 2;
    try
    {
        const Memory q(bytes), k(bytes), v(bytes), o(bytes), d_o(bytes), dq(bytes), dk(bytes), dv(bytes);
        const Memory lse(batch * heads * rows * sizeof(float));
        const auto tensor = [](const Memory& of) { return fmha::bshd(of.get(), rows, heads, hdim); };

        fmha::Problem problem;
        problem.dtype(QOLA_FP16).lengths(batch, rows, rows).heads(heads).hdim(hdim);
        problem.q(tensor(q)).k(tensor(k)).v(tensor(v)).o(tensor(o)).d_o(tensor(d_o));
        problem.dq(tensor(dq)).dk(tensor(dk)).dv(tensor(dv));
        problem.lse(fmha::of_rows(lse.get(), rows, heads));

        const fmha::Dispatcher backward(fmha::backward());
        const fmha::Found found = backward.find(problem);
        for(const fmha::Stage& stage : found.stages)
            std::cout << (stage.name == found.name() ? "* " : "  ") << stage.name << '\n';
        std::cout << found.workspace << " bytes of workspace\n";
        const Memory workspace(found.workspace);
        backward.launch(problem.workspace(workspace.get(), found.workspace));
        check(hipDeviceSynchronize(), "hipDeviceSynchronize");
    }
    catch(const std::exception& error)
    {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
