// The settings. No other file of the runtime reads the environment.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace qola_runtime {

/// The validated settings.
struct Settings
{
    bool compile    = true;             ///< QOLA_LAZY, NVTE_CK_JIT: whether missing kernels are compiled
    bool background = false;            ///< QOLA_LAZY: compile in the background; calls return without it
    std::string cache;                  ///< root that is written to
    std::vector<std::string> caches;    ///< QOLA_CACHE: roots that are read, `cache` among them
    std::vector<std::string> packs;     ///< QOLA_PACKS: files and directories
    std::string root;                   ///< QOLA_ROOT: has a directory of sources for each module
    std::string module_root;            ///< CK_JIT_MANIFEST: a directory of sources, for any module
    std::vector<std::string> compiler;  ///< QOLA_COMPILER: program and first arguments
    std::vector<std::string> compilers; ///< programs to search if QOLA_COMPILER is not set
    std::string rocm;                   ///< ROCM_PATH
    std::string path;                   ///< PATH
    std::string temporary;              ///< TMPDIR, else /tmp
    std::string record;                 ///< QOLA_RECORD: file; empty for none
    bool verbose        = false;        ///< QOLA_VERBOSE
    int jobs            = 0;            ///< CK_JIT_JOBS, MAX_JOBS: compiles at a time; 0: what fits
    int compile_timeout = 1800;         ///< QOLA_COMPILE_TIMEOUT: seconds of one compile
    int wait            = 1860;         ///< QOLA_WAIT: seconds to wait for another process's compile
    std::vector<std::string> errors;    ///< errors, one per line; the other members are then invalid
    std::vector<std::string> notes;     ///< notes for the user, one per line
};

/// Returns the value of a variable, null if it is not set.
using Variable = std::function<const char*(const char*)>;

/// Parses the settings of an environment. An empty variable counts as not set.
Settings settings_of(const Variable& variable);

/// Returns the settings of this process, read once, with absolute paths.
const Settings& settings();

/// Returns selected variables of this process's environment for a child, and additional ones.
std::vector<std::string> environment_of_child(const std::vector<std::string>& kept,
                                              const std::vector<std::string>& with);

} // namespace qola_runtime
