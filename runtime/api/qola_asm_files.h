// Included before the sources of a Python module with embedded code objects (-include): AITER's classes
// load $AITER_ASM_DIR<file> with hipModuleLoad, and get the embedded file instead. AITER's Python sets the
// variable; no such directory needs to exist.
#ifndef QOLA_ASM_FILES_H
#define QOLA_ASM_FILES_H

#include "qola_asm.h"

#include "runtime/lazy/device.h"

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace qola_asm {

/// Returns the key of a file of AITER's for an arch: "/hsa/gfx942//mla/a.co" with the directory
/// "/hsa/gfx942/" is hsa/gfx942/mla/a.co, and so is "mla/a.co" with any directory.
inline std::string key_of_file(std::string_view file, std::string_view directory, std::string_view arch)
{
    if(!directory.empty() && file.substr(0, directory.size()) == directory)
        file.remove_prefix(directory.size());
    while(!file.empty() && file.front() == '/')
        file.remove_prefix(1);
    return "hsa/" + std::string(arch) + "/" + std::string(file);
}

/// Returns the table of the current device's arch. Throws Error if there is none, or if HIP fails.
template <typename Table>
Table& table_of_arch(std::initializer_list<std::pair<std::string_view, Table*>> tables)
{
    const std::string& arch = qola_runtime::arch_of_current_device(check);
    for(const auto& [name, table] : tables)
        if(name == arch)
            return *table;
    throw Error("no assembly kernels of this kind for " + arch);
}

/// Loads the embedded code object of a file for the current device.
/// Throws NotEmbedded if there is none, Error if HIP fails.
inline hipError_t load_file(hipModule_t* module, const char* file)
{
    const char* directory = std::getenv("AITER_ASM_DIR");
    const std::string& arch = qola_runtime::arch_of_current_device(check);
    load(module, key_of_file(file, directory ? directory : "", arch));
    return hipSuccess;
}

} // namespace qola_asm

#define hipModuleLoad(module, file) ::qola_asm::load_file((module), (file))

#endif // QOLA_ASM_FILES_H
