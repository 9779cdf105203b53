// The sources of a module. Only files that its index lists are compiled.
#ifndef QOLA_RUNTIME_SOURCES_H
#define QOLA_RUNTIME_SOURCES_H

#include "index.h"
#include "ownership.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// Returns the faults of a directory of sources, one per line: untrusted owners, and files that the index
/// does not list, because a compiler could read them instead of listed ones.
std::vector<std::string>
faults_of_directory(const std::string& root, const Index& index, const Trust& trust);

/// Returns the files of an index, and the kernels, whose digests are wrong, one per line.
std::vector<std::string> faults_of_files(const std::string& root, const Index& index);

/// Computes the digest of everything that determines a kernel's code, except the compiler, like
/// qola/lazy/index.py.
std::string code_of(const Index& index, const Kernel& kernel);

/// Copies the sources of a kernel to a directory, and compares their digests with the index. Throws
/// Problem with the file, the expected and the found digest.
void copy_sources(const std::string& root,
                  const Index& index,
                  const Kernel& kernel,
                  const std::string& directory);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_SOURCES_H
