// kernels.index lists a module's kernels and how to compile each (written by qola/lazy/index.py).
#ifndef QOLA_RUNTIME_INDEX_H
#define QOLA_RUNTIME_INDEX_H

#include "kernel.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qola_runtime {

/// A set of headers that kernels share.
struct Headers
{
    std::vector<std::string> dirs;                          ///< in search order, below the root
    std::vector<std::pair<std::string, std::string>> files; ///< path below the root, digest
};

/// A parsed index.
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

/// File name of the index in the directory of a module's sources.
constexpr const char* kIndexFile = "kernels.index";

/// Parses an index. Throws Problem with `path`, line and defect.
Index index_of(std::string_view text, const std::string& path);

/// Reads the index below a root, and compares it with a digest, if given. Throws Problem.
Index read_index(const std::string& root, const std::string& digest = {});

} // namespace qola_runtime

#endif // QOLA_RUNTIME_INDEX_H
