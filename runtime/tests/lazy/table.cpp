// The table of kernels of `ask`, read from the file ASK_TABLE: a test makes many, and
// qola/lazy/index.py's own is C++ to be compiled into a library. First line: name, root, identity
// and digest of the index, between tabs; then name, arch and code of each kernel.
#include "qola_lazy.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace qola_lazy {
namespace {

const char* kept(const std::string& text) { return (new std::string(text))->c_str(); }

std::vector<const char*> parts(const std::string& line)
{
    std::vector<const char*> result;
    std::istringstream stream(line);
    for(std::string part; std::getline(stream, part, '\t');)
        result.push_back(kept(part));
    return result;
}

Module read()
{
    const char* path = std::getenv("ASK_TABLE");
    std::ifstream file(path ? path : "");
    std::string line;
    std::getline(file, line);
    const std::vector<const char*> head = parts(line);
    auto* kernels                       = new std::vector<Kernel>;
    while(std::getline(file, line))
    {
        const std::vector<const char*> row = parts(line);
        kernels->push_back({row.at(0), row.at(1), row.at(2)});
    }
    return {head.at(0), head.at(1), head.at(2), head.at(3), kernels->data(), kernels->size()};
}

} // namespace

const Module module                                 = read();
std::atomic<const qola_kernel_function*> loaded[64] = {};

} // namespace qola_lazy
