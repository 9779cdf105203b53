// The sources of a module. kernels.index lists its kernels and how to compile each (written by
// qola/lazy/index.py); only files that it lists are compiled.
#pragma once

#include "pack.h"

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

/// Returns the faults of a directory of sources, one per line: untrusted owners, and files that the index
/// does not list, because a compiler could read them instead of listed ones.
std::vector<std::string> faults_of_directory(const std::string& root, const Index& index, const Trust& trust);

/// Returns the files of an index, and the kernels, whose digests are wrong, one per line.
std::vector<std::string> faults_of_files(const std::string& root, const Index& index);

/// Returns the flags that compile a kernel.
std::vector<std::string> flags_of(const Index& index, const Kernel& kernel);

/// Computes the digest of everything that determines a kernel's code, except the compiler, like
/// qola/lazy/index.py.
std::string code_of(const Index& index, const Kernel& kernel);

/// Copies the sources of a kernel to a directory, and compares their digests with the index. Throws
/// Problem with the file, the expected and the found digest.
void copy_sources(const std::string& root, const Index& index, const Kernel& kernel, const std::string& directory);

} // namespace qola_runtime
