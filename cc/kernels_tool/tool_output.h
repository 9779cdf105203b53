// Writing packs of either form.
#ifndef QOLA_KERNELS_TOOL_TOOL_OUTPUT_H
#define QOLA_KERNELS_TOOL_TOOL_OUTPUT_H

#include "cc/runtime/pack.h"

#include <string>
#include <vector>

namespace qola_runtime {

/// Writes a pack: one file where the name ends with .qpack, else a directory, to which entries are
/// added. What fails leaves nothing new behind. Throws Problem.
void write_pack(const std::string& output, const std::vector<Item>& items);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_TOOL_OUTPUT_H
