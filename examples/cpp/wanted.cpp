// The kernels that a program needs, listed where they are needed, as the manifest that builds them: print it at
// build time, and hand it to qola build. The library that it makes is then the one to link.
//
//   c++ -std=c++17 -I<bundle>/include wanted.cpp && ./a.out > mine.toml
#include <iostream>
#include <iterator>

#include "qola_fmha.hpp"

#ifdef QOLA_NAMESPACE
namespace fmha = qola::QOLA_NAMESPACE::fmha;
#else
namespace fmha = qola::fmha;
#endif

namespace {

constexpr fmha::Wanted training()
{
    fmha::Wanted wanted{};
    wanted.dtype   = "bf16";
    wanted.hdim_q  = 128;
    wanted.bias    = fmha::Has::no;
    wanted.alibi   = fmha::Has::no;
    wanted.dropout = fmha::Has::no;
    wanted.receipt = "te";
    return wanted;
}

constexpr fmha::Wanted stored(fmha::Wanted wanted)
{
    wanted.lse = fmha::Has::yes;
    return wanted;
}

constexpr fmha::Wanted repeatable(fmha::Wanted wanted)
{
    wanted.mode          = "batch";
    wanted.dbias         = fmha::Has::no;
    wanted.deterministic = fmha::Has::yes;
    return wanted;
}

constexpr fmha::Wanted forward[]  = {stored(training())};
constexpr fmha::Wanted backward[] = {repeatable(training())};

} // namespace

int main()
{
    std::cout << fmha::manifest("mine",
                                {"gfx942", "gfx950"},
                                {std::begin(forward), std::end(forward)},
                                {std::begin(backward), std::end(backward)});
}
