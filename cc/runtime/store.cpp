#include "store.h"

#include "text.h"

namespace qola_runtime {
namespace {

Library found_in(const std::string& root,
                 const Wanted& wanted,
                 const std::string& what,
                 const Trust& trust = trust_in_user())
{
    Looked looked = look_up(root, wanted, trust);
    if(!looked.fault.empty())
        say_once(looked.fault + " (passed over)");
    if(!looked.found)
        return {};
    return {looked.path, std::move(looked.bytes), what + " " + looked.path, false, wanted.identity};
}

} // namespace

Store::Store(const Settings& settings, std::vector<std::string> beside, const std::string& file)
    : settings_(settings),
      beside_(std::move(beside)),
      trust_beside_(trust_in_owner_of(file))
{
}

Library Store::find(const Wanted& wanted)
{
    Library found = find_cached(wanted);
    return found ? std::move(found) : find_packed(wanted);
}

Library Store::find_cached(const Wanted& wanted) const
{
    for(const std::string& root : settings_.caches)
        if(Library found = found_in(root, wanted, "cache"))
            return found;
    return {};
}

Library Store::find_packed(const Wanted& wanted)
{
    std::call_once(opened_, [this] { open_packs(); });
    for(const Source& source : packs_)
    {
        if(source.pack == nullptr)
        {
            if(Library found = found_in(source.directory, wanted, "pack", source.trust))
                return found;
            continue;
        }
        if(Library found = find_in(*source.pack, wanted))
            return found;
    }
    // A machine that compiles nothing does not know which compiler its packs are of. They do.
    if(!wanted.code.empty())
        for(const Source& source : packs_)
            if(source.pack != nullptr)
                if(const Wanted other = source.pack->of_another_compiler(wanted);
                   !other.key.empty())
                    if(Library found = find_in(*source.pack, other))
                        return found;
    return {};
}

Library Store::find_in(const Pack& pack, const Wanted& wanted) const
{
    try
    {
        if(std::string bytes = pack.find(wanted.key); !bytes.empty())
            return {{}, std::move(bytes), "pack " + pack.path(), false, wanted.identity};
    }
    catch(const Problem& problem)
    {
        say_once(std::string(problem.what()) + " (passed over)");
    }
    return {};
}

void Store::open_packs()
{
    for(const std::string& path : settings_.packs)
    {
        if(!is_file(path) && !is_directory(path))
            say_once("QOLA_PACKS: there is no " + path);
        open_pack(path, trust_in_user());
    }
    for(const std::string& path : beside_)
        open_pack(path, trust_beside_);
}

void Store::open_pack(const std::string& path, const Trust& trust)
{
    if(is_directory(path))
    {
        for(const std::string& name : names_in(path))
            if(ends_with(name, ".qpack"))
                open_pack(path + "/" + name, trust);
        packs_.push_back({path, nullptr, trust});
    }
    else if(is_file(path))
    {
        try
        {
            packs_.push_back({{}, std::make_unique<Pack>(path, trust), trust});
        }
        catch(const Problem& problem)
        {
            say_once(std::string(problem.what()) + " (passed over)");
        }
    }
}

} // namespace qola_runtime
