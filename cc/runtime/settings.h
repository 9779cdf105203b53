// What users set: the one place of the runtime that reads the environment.
#ifndef QOLA_RUNTIME_SETTINGS_H
#define QOLA_RUNTIME_SETTINGS_H

#include <functional>
#include <string>
#include <vector>

namespace qola_runtime {

/// The environment, checked.
struct Settings
{
    bool compile = true;                ///< QOLA_LAZY, NVTE_CK_JIT: whether a miss is compiled
    bool background = false;            ///< QOLA_LAZY: while the calls that need it go on without
    std::string cache;                  ///< root that is written to
    std::vector<std::string> caches;    ///< QOLA_CACHE: roots that are read, `cache` among them
    std::vector<std::string> packs;     ///< QOLA_PACKS: files and directories
    std::string root;                   ///< QOLA_ROOT: has a directory of sources for each module
    std::string module_root;            ///< CK_JIT_MANIFEST: a directory of sources, for any module
    std::vector<std::string> compiler;  ///< QOLA_COMPILER: program and first arguments
    std::vector<std::string> compilers; ///< programs to look for where that is not set
    std::string rocm;                   ///< ROCM_PATH
    std::string path;                   ///< PATH
    std::string temporary;              ///< TMPDIR, else /tmp
    std::string record;                 ///< QOLA_RECORD: file; empty for none
    bool verbose        = false;        ///< QOLA_VERBOSE
    int jobs            = 0;            ///< CK_JIT_JOBS, MAX_JOBS: compiles at a time; 0: what fits
    int compile_timeout = 1800;      ///< QOLA_COMPILE_TIMEOUT: seconds of one compile
    int wait            = 1860;      ///< QOLA_WAIT: seconds to wait for another process's compile
    std::vector<std::string> errors; ///< what is wrong, a line each: nothing else holds then
    std::vector<std::string> notes;  ///< what is deprecated, a line each
};

/// Returns the value of a variable, null where it is not set.
using Variable = std::function<const char*(const char*)>;

/// The settings in an environment. A variable that is set to nothing is not set.
Settings settings_of(const Variable& variable);

/// The settings of this process, read once, paths in them from the root on.
const Settings& settings();

/// Of this process's environment some variables for a child, and others.
std::vector<std::string> environment_of_child(const std::vector<std::string>& kept,
                                              const std::vector<std::string>& with);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_SETTINGS_H
