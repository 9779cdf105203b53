// The sources of a module: what an index lists, and nothing else, is compiled.
#ifndef QOLA_RUNTIME_SOURCES_H
#define QOLA_RUNTIME_SOURCES_H

#include "index.h"
#include "ownership.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// What is wrong with a directory of sources, a line each: that another user may have written it, and
/// files that the index does not list, which a compiler could read in place of those that it does.
std::vector<std::string>
faults_of_directory(const std::string& root, const Index& index, const Trust& trust);

/// What is wrong with the files that an index lists: digests, of them and of all that decides a
/// kernel's code, a line each.
std::vector<std::string> faults_of_files(const std::string& root, const Index& index);

/// Digest of all that decides a kernel's code but the compiler, as qola/lazy/index.py has it.
std::string code_of(const Index& index, const Kernel& kernel);

/// Copies what a kernel is compiled from to a directory, checked against the index as it is copied.
/// Throws Problem that names the file, what is expected and what was found.
void copy_sources(const std::string& root,
                  const Index& index,
                  const Kernel& kernel,
                  const std::string& directory);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_SOURCES_H
