// Writing packs of either form.
#ifndef QOLA_KERNELS_TOOL_OUTPUT_H
#define QOLA_KERNELS_TOOL_OUTPUT_H

#include "cc/runtime/pack.h"
#include "tool.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// A library on its way into a pack. What lies in a cache or pack is read again when it is written.
Item packed(Tool& tool, const ModuleKernel& kernel, Library library);

/// Writes a pack: one file where the name ends with .qpack, else a directory, to which entries are
/// added. What fails leaves nothing new behind. Throws Problem.
void write_pack(const std::string& output, const std::vector<Item>& items);

/// Says where a directory has kernels of other compilers than the libraries'. It does not tell of
/// which its entries are: libraries find those of their own alone, unless they ask one that is at
/// hand.
void warn_of_compilers(const std::string& output,
                       const std::vector<ModuleKernel>& kernels,
                       const std::vector<Item>& items);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_OUTPUT_H
