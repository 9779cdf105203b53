// kernels.index: what a module has, and how each kernel of it is compiled (qola/lazy/index.py).
#ifndef QOLA_RUNTIME_INDEX_H
#define QOLA_RUNTIME_INDEX_H

#include "kernel.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qola_runtime {

/// Headers that some kernels include.
struct Headers
{
    std::vector<std::string> dirs;                          ///< in search order, below the root
    std::vector<std::pair<std::string, std::string>> files; ///< path below the root, digest
};

/// A whole index.
struct Index
{
    std::string module;
    std::string identity;
    std::vector<std::string> flags;
    std::map<std::string, std::vector<std::string>> arch_flags;
    std::map<std::string, std::vector<std::string>> package_flags;
    std::map<std::string, Headers> headers;
    std::vector<std::string> link_flags;
    std::map<std::string, std::string> link_scripts; ///< digest by path below the root
    std::map<std::string, std::string> entries;      ///< digest by name
    std::vector<Kernel> kernels;
};

/// Name of the file below the directory of a module's sources.
constexpr const char* kIndexFile = "kernels.index";

/// Reads an index. Throws Problem that names `path`, line and what is wrong.
Index index_of(std::string_view text, const std::string& path);

/// Reads the index below a root. With a digest, it has to have that. Throws Problem.
Index read_index(const std::string& root, const std::string& digest = {});

} // namespace qola_runtime

#endif // QOLA_RUNTIME_INDEX_H
