#include "arch_packs.h"

#include "settings.h"

#include <algorithm>

namespace qola_runtime {

ArchPacks::ArchPacks(std::string library) : library_(std::move(library)), file_(own_file()) {}

ArchPacks::Found ArchPacks::find(const std::string& arch, const std::vector<std::string>& keys)
{
    Found found{};
    for(const auto& [path, trust] : places_of(name_of(arch)))
    {
        if(std::find(found.searched.begin(), found.searched.end(), path) != found.searched.end())
            continue;
        found.searched.push_back(path);
        const Pack* const pack = at(path, trust);
        if(pack == nullptr)
            continue;
        // It may belong to another build, and the next pack to this one.
        if(std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return pack->places().count(key) != 0; }))
        {
            found.pack = pack;
            return found;
        }
        found.other = path;
    }
    return found;
}

/// Returns the places of a pack in search order, with their trusted owners.
std::vector<std::pair<std::string, Trust>> ArchPacks::places_of(const std::string& name) const
{
    std::vector<std::pair<std::string, Trust>> places;
    // Other named files may be packs of other libraries.
    for(const std::string& path : settings().packs)
        if(is_directory(path))
            places.emplace_back(path + "/" + name, trust_in_user());
        else if(base_name(path) == name)
            places.emplace_back(path, trust_in_user());
    const Trust trust = trust_in_owner_of(file_);
    for(const std::string& file : {file_, real_path(file_)})
        if(!file.empty())
            places.emplace_back(directory_of(file) + "/" + name, trust);
    return places;
}

/// Returns the pack at a path, or null if the file does not exist.
const Pack* ArchPacks::at(const std::string& path, const Trust& trust)
{
    auto& found = packs_[path];
    if(!found && is_file(path))
        found = std::make_unique<Pack>(path, trust);
    return found.get();
}

} // namespace qola_runtime
