// A kernel instance for one arch: what an index lists, a library asks for, and a command selects.
#ifndef QOLA_RUNTIME_KERNEL_H
#define QOLA_RUNTIME_KERNEL_H

#include <string>

namespace qola_runtime {

/// A kernel instance for one arch. The last four are how it is compiled: an index has them, a
/// library's own table does not.
struct Kernel
{
    std::string name;
    std::string arch;
    std::string code; ///< digest of all that decides its code but the compiler
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
