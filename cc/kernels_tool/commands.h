// The commands of qola-kernels, a file each, and what several of them do.
#ifndef QOLA_KERNELS_TOOL_COMMANDS_H
#define QOLA_KERNELS_TOOL_COMMANDS_H

#include "tool.h"

#include <string>

namespace qola_runtime {

// Each returns the exit code.
int build(Tool& tool);
int cache(Tool& tool);
int clean(Tool& tool);
int export_pack(Tool& tool);
int identity(Tool& tool);
int list(Tool& tool);
int pack(Tool& tool);
int verify(Tool& tool);


/// Prints a line to standard output.
void print(const std::string& line);

/// The kernels that are selected, all where nothing is; says which names are unknown. Throws
/// UsageError where something has to be selected.
Kernels selected(Tool& tool, bool all_by_default);

/// The pack to be written, from the root on; empty where none is asked for. Throws UsageError where
/// one is needed.
std::string output_of(const Tool& tool, bool needed);

/// Path of a file in a cache below the cache's root.
std::string path_below(const std::string& root, const Found& item);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_COMMANDS_H
