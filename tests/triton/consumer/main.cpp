#include "qola_triton.h"

#include <cstdio>

int main()
{
    alignas(16) static char memory[1024];
    qola_triton_attention problem = {};
    problem.size   = sizeof problem;
    problem.dtype  = 2;
    problem.causal = 2;
    problem.hdim   = 128;
    problem.batch = problem.heads = problem.heads_k = problem.rows = problem.columns = 1;
    problem.scale = 1;
    problem.q = problem.k = problem.v = memory;
    problem.o = problem.lse = memory;
    const int status = QOLA_TRITON(attention_forward)(&problem, nullptr);
    std::printf("%d %s\n", status, QOLA_TRITON(last_error)());
}
