// A kernel instance for one arch, as listed in an index and requested by libraries and commands.
#ifndef QOLA_RUNTIME_KERNEL_H
#define QOLA_RUNTIME_KERNEL_H

#include <string>

namespace qola_runtime {

/// A kernel instance for one arch. The last four members describe its compilation; they come from an
/// index and are empty in a library's own table.
struct Kernel
{
    std::string name;
    std::string arch;
    std::string code; ///< digest of everything that determines its code, except the compiler
    std::string package = {};
    std::string headers = {};
    std::string entry   = {};
    std::string source  = {}; ///< digest of its source

    /// Paths below the root.
    std::string source_path() const { return "src/" + package + "/" + name + ".cpp"; }
    std::string entry_path() const { return "entries/" + entry + ".cpp"; }
};

} // namespace qola_runtime

#endif // QOLA_RUNTIME_KERNEL_H
