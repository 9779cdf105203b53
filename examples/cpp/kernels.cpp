// The kernels of a library as JSON, and what is said of a problem that it cannot have.
//
//   c++ -std=c++17 -I<bundle>/include kernels.cpp <bundle>/lib/<ns>_libmha_fwd.so
#include <iostream>

#include "qola_fmha.hpp"

#ifdef QOLA_NAMESPACE
namespace fmha = qola::QOLA_NAMESPACE::fmha;
#else
namespace fmha = qola::fmha;
#endif

int main()
{
    const fmha::Dispatcher forward(fmha::forward());
    std::cout << forward.to_json() << '\n';
    fmha::Problem problem;
    problem.dtype(QOLA_FP16).lengths(1, 64, 64).heads(2).hdim(32).num_splits(3);
    try
    {
        forward.find(problem);
    }
    catch(const fmha::Error& error)
    {
        std::cout << error.status() << ": " << error.what() << '\n';
    }
}
