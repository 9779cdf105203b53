// Many threads that find and launch kernels at once, none of which was loaded before. Built with
// ThreadSanitizer, together with the library's sources: arguments are the numbers of threads and of rounds.
#include "runtime/triton/qola_triton.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<int> ready{0};
std::atomic<int> wrong{0};

void expect(int status, int expected, const char* words)
{
    const char* const error = QOLA_TRITON(last_error)();
    if(status == expected && std::strstr(error, words) != nullptr)
        return;
    std::printf("%d, expected %d: %s\n", status, expected, error);
    ++wrong;
}

/// One thread of `count`: each begins with another kernel, and asks for one that is not there in between.
void ask(int number, int count, int rounds)
{
    alignas(16) char memory[64];
    qola_triton_attention problem = {};
    problem.size   = sizeof problem;
    problem.dtype  = 1;
    problem.causal = 2;
    problem.hdim   = 32;
    problem.batch = problem.heads = problem.heads_k = problem.rows = problem.columns = 1;
    problem.q = problem.k = problem.v = problem.d_o = memory;
    problem.o = problem.lse = problem.delta = problem.dq = problem.dk = problem.dv = memory;
    const auto* const starts = reinterpret_cast<const std::int32_t*>(memory);
    ++ready;
    while(ready < count)
        std::this_thread::yield();
    for(int round = 0; round < rounds; ++round)
    {
        const int turn   = number + round;
        problem.starts_q = problem.starts_k = turn % 2 != 0 ? starts : nullptr;
        problem.hdim                        = 32;
        if(turn % 4 < 2)
            expect(QOLA_TRITON(attention_forward)(&problem, nullptr), QOLA_TRITON_OK, "");
        else
            expect(QOLA_TRITON(attention_backward)(&problem, nullptr), QOLA_TRITON_OK, "");
        problem.hdim            = 1000 + number;
        const std::string words = "HDIM=" + std::to_string(problem.hdim);
        expect(QOLA_TRITON(attention_forward)(&problem, nullptr), QOLA_TRITON_NO_KERNEL, words.c_str());
        qola_triton_found found = {sizeof found, nullptr, nullptr, 0, 0};
        const qola_triton_choice choice = {"HDIM", "32"};
        expect(QOLA_TRITON(find)("attention_backward_dq", &choice, 1, &found), QOLA_TRITON_OK, "");
        if(std::strcmp(found.arch, "gfx942") != 0)
            ++wrong;
    }
}

} // namespace

int main(int, char** arguments)
{
    const int count = std::atoi(arguments[1]), rounds = std::atoi(arguments[2]);
    std::vector<std::thread> threads;
    for(int number = 0; number < count; ++number)
        threads.emplace_back(ask, number, count, rounds);
    for(std::thread& thread : threads)
        thread.join();
    return wrong == 0 ? 0 : 1;
}
