#include "packs.h"

#include "cc/runtime/files.h"
#include "cc/runtime/ownership.h"
#include "cc/runtime/settings.h"

#include <utility>
#include <vector>

#include <dlfcn.h>

namespace qola_triton {
namespace {

using qola_runtime::Trust;

std::string library_file()
{
    Dl_info info = {};
    const bool known = dladdr(reinterpret_cast<const void*>(&library_file), &info) != 0;
    return known && info.dli_fname != nullptr ? qola_runtime::absolute(info.dli_fname) : "";
}

/// Where the pack of a name may be, in order: where the environment says, beside the library, and beside
/// where links to it lead; and whose files are trusted there.
std::vector<std::pair<std::string, Trust>> places_of(const std::string& name)
{
    std::vector<std::pair<std::string, Trust>> places;
    // Of the files that are named, others may be packs of lazy libraries.
    for(const std::string& path : qola_runtime::settings().packs)
        if(qola_runtime::is_directory(path))
            places.emplace_back(path + "/" + name, qola_runtime::trust_in_user());
        else if(qola_runtime::base_name(path) == name)
            places.emplace_back(path, qola_runtime::trust_in_user());
    const std::string library = library_file();
    const Trust trust         = qola_runtime::trust_in_owner_of(library);
    for(const std::string& file : {library, qola_runtime::real_path(library)})
        if(!file.empty())
            places.emplace_back(qola_runtime::directory_of(file) + "/" + name, trust);
    return places;
}

} // namespace

std::string Packs::code_of(const Instance& instance)
{
    const qola_runtime::Pack& pack = of(instance.arch);
    std::string code               = pack.find(instance.key);
    if(code.empty())
        throw qola_runtime::Problem(pack.path() + " has no " + instance.name + " of this build of " +
                                    table.library);
    return code;
}

const qola_runtime::Pack& Packs::of(const std::string& arch)
{
    auto& found = packs_[arch];
    if(found)
        return *found;
    const std::string name = std::string(table.library) + "-" + arch + ".qpack";
    for(const auto& [path, trust] : places_of(name))
        if(qola_runtime::is_file(path))
        {
            found = std::make_unique<qola_runtime::Pack>(path, trust);
            return *found;
        }
    const std::string beside = qola_runtime::directory_of(library_file()) + "/" + name;
    throw qola_runtime::Problem("no pack of kernels for " + arch + ": " + beside);
}

} // namespace qola_triton
