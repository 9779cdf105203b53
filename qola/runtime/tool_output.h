// Writing packs of either form.
#ifndef QOLA_RUNTIME_TOOL_OUTPUT_H
#define QOLA_RUNTIME_TOOL_OUTPUT_H

#include "entry.h"

#include <string>
#include <utility>
#include <vector>

namespace qola_runtime {

/// Whole entries, and what they are.
using Entries = std::vector<std::pair<Wanted, std::string>>;

/// Writes a pack: one file where the name ends with .qpack, else a directory, to which entries are
/// added. A pack file appears whole or not at all. Throws Problem.
void write_pack(const std::string& output, const Entries& entries);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_TOOL_OUTPUT_H
