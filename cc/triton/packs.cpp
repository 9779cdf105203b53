#include "packs.h"

#include "cc/runtime/files.h"
#include "cc/runtime/ownership.h"
#include "cc/runtime/settings.h"
#include "cc/runtime/sha256.h"

#include <string_view>
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

/// Returns the places of a pack in search order, with their trusted owners: the environment, the library's
/// directory, and the directories of its link targets.
std::vector<std::pair<std::string, Trust>> places_of(const std::string& name)
{
    std::vector<std::pair<std::string, Trust>> places;
    // Other named files may be packs of lazy libraries.
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

/// Checks that an entry's code is the code that the library was built with. The entry's own digest does not
/// prove that, because a forger can change both.
void check_code(const std::string& path, const Instance& instance, std::string_view entry)
{
    const std::string found = qola_runtime::sha256(entry.substr(0, entry.size() - qola_runtime::kTrailerBytes));
    if(found != instance.key)
        throw qola_runtime::Problem(path + ": " + instance.name + " is other code than " + table.library +
                                    " was built with: it has the digest " + found + ", expected " + instance.key);
}

} // namespace

std::string Packs::code_of(const Instance& instance)
{
    const std::string name = std::string(table.library) + "-" + instance.arch + ".qpack";
    std::string lacking;
    for(const auto& [path, trust] : places_of(name))
    {
        const qola_runtime::Pack* const pack = at(path, trust);
        if(pack == nullptr)
            continue;
        // It may belong to another build, and the next pack to this one.
        if(std::string code = pack->find(instance.key); !code.empty())
        {
            check_code(path, instance, code);
            return code;
        }
        lacking = path;
    }
    if(!lacking.empty())
        throw qola_runtime::Problem(lacking + " has no " + instance.name + " of this build of " + table.library);
    const std::string beside = qola_runtime::directory_of(library_file()) + "/" + name;
    throw qola_runtime::Problem(std::string("no pack of kernels for ") + instance.arch + ": " + beside);
}

const qola_runtime::Pack* Packs::at(const std::string& path, const qola_runtime::Trust& trust)
{
    auto& found = packs_[path];
    if(!found && qola_runtime::is_file(path))
        found = std::make_unique<qola_runtime::Pack>(path, trust);
    return found.get();
}

} // namespace qola_triton
