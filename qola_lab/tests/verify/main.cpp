// A program that uses qola's libraries through their public headers alone.
//
//   consumer TABLE
//
// Each line of TABLE is a problem, "key=value key=value ..."; for each the program calls the entry
// point of its direction and prints the status. Problem number n (from 1) runs on the n-th stream
// the program makes, so that its launches can be told from those of the others.
#include "problem.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

namespace {

void check(hipError_t error, const char* what)
{
    if(error == hipSuccess)
        return;
    std::fprintf(stderr, "consumer: %s: %s\n", what, hipGetErrorString(error));
    std::exit(3);
}

Problem read(const std::string& line)
{
    std::map<std::string, std::string> values;
    std::istringstream words(line);
    for(std::string word; words >> word;)
        values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    const auto text   = [&](const char* key) { return values.at(key); };
    const auto number = [&](const char* key) { return std::stoi(values.at(key)); };
    const auto flag   = [&](const char* key) { return values.at(key) == "1"; };

    Problem problem{};
    problem.direction     = text("direction");
    problem.dtype         = text("dtype");
    problem.mode          = text("mode");
    problem.mask          = text("mask");
    problem.bias          = text("bias");
    problem.hdim_q        = number("hdim_q");
    problem.hdim_v        = number("hdim_v");
    problem.batch         = number("batch");
    problem.nhead_q       = number("nhead_q");
    problem.nhead_k       = number("nhead_k");
    problem.seqlen_q      = number("seqlen_q");
    problem.seqlen_k      = number("seqlen_k");
    problem.dropout       = std::stod(text("dropout"));
    problem.lse           = flag("lse");
    problem.dbias         = flag("dbias");
    problem.store_randval = flag("store_randval");
    problem.deterministic = flag("deterministic");
    problem.use_ext_asm   = flag("use_ext_asm");
    problem.v3_api_check  = flag("v3_api_check");
    problem.bf16_cvt      = number("bf16_cvt");
    problem.atomic_fp32   = flag("atomic_fp32");
    problem.soft_cap      = std::stod(text("soft_cap"));
    problem.min_seqlen_q  = number("min_seqlen_q");
    return problem;
}

float run(const Problem& problem, hipStream_t stream)
{
#ifdef CONSUMER_FWD
    if(problem.direction == "fwd")
        return run_forward(problem, stream);
#endif
#ifdef CONSUMER_BWD
    if(problem.direction == "bwd")
        return run_backward(problem, stream);
#endif
    std::fprintf(stderr, "consumer: linked without direction %s\n", problem.direction.c_str());
    std::exit(2);
}

} // namespace

void* device_memory(std::size_t bytes)
{
    void* memory = nullptr;
    check(hipMalloc(&memory, bytes), "hipMalloc");
    return memory;
}

const void* sequence_starts(int count, int length)
{
    std::vector<int> starts;
    for(int i = 0; i <= count; ++i)
        starts.push_back(i * length);
    const std::size_t bytes = starts.size() * sizeof starts[0];
    void* memory            = device_memory(bytes);
    check(hipMemcpy(memory, starts.data(), bytes, hipMemcpyHostToDevice), "hipMemcpy");
    return memory;
}

int main(int, char** argv)
{
    std::ifstream table(argv[1]);
    for(std::string line; std::getline(table, line);)
    {
        hipStream_t stream = nullptr;
        check(hipStreamCreate(&stream), "hipStreamCreate");
        std::printf("%g\n", static_cast<double>(run(read(line), stream)));
        std::fflush(stdout);
    }
    return 0;
}
