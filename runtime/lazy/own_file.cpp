// Apart from files.cpp, so that programs that do not call it neither run it nor link libdl.
#include "files.h"

#include <dlfcn.h>

namespace qola_runtime {
namespace {

std::string find_own_file()
{
    Dl_info info     = {};
    const bool known = dladdr(reinterpret_cast<const void*>(&find_own_file), &info) != 0;
    return known && info.dli_fname != nullptr ? absolute(info.dli_fname) : "";
}

// Set when the file is loaded: its path may be relative, and a process may change its directory. Not destroyed, because
// a library may launch kernels while a process ends.
const std::string& loaded_file = *new std::string(find_own_file());

} // namespace

const std::string& own_file() { return loaded_file; }

} // namespace qola_runtime
