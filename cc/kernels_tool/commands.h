// The commands of qola-kernels, one file each, and their shared functions.
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

/// Returns the selected kernels, or all without a selection if `all_by_default`, else throws
/// UsageError. Reports unknown names.
Kernels selected(Tool& tool, bool all_by_default);

/// Returns the absolute path of the pack to write, or "" if none is requested. Throws UsageError if
/// `needed` and none is requested.
std::string output_of(const Tool& tool, bool needed);

/// Returns the path of a cache file relative to the cache's root.
std::string path_below(const std::string& root, const Found& item);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_COMMANDS_H
