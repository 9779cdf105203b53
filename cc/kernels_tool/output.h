// Writes packs: single files or directories.
#ifndef QOLA_KERNELS_TOOL_OUTPUT_H
#define QOLA_KERNELS_TOOL_OUTPUT_H

#include "cc/runtime/pack.h"
#include "tool.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// Makes a pack's item of a library. A library from a cache or pack is read again when it is written.
Item packed(Tool& tool, const ModuleKernel& kernel, Library library);

/// Writes a pack: a file if the name ends with .qpack, else a directory, to which it adds entries. A
/// failure leaves no new files. Throws Problem.
void write_pack(const std::string& output, const std::vector<Item>& items);

/// Warns if a directory gets kernels of compilers other than the libraries'. Entries in a directory do
/// not name their compiler, so a library only finds those of its own compiler or of an installed one.
void warn_of_compilers(const std::string& output,
                       const std::vector<ModuleKernel>& kernels,
                       const std::vector<Item>& items);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_OUTPUT_H
