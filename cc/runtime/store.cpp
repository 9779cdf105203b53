#include "store.h"

#include "text.h"

namespace qola_runtime {
namespace {

Library found_in(const std::string& root,
                 const CompiledKernel& kernel,
                 const std::string& what,
                 const Trust& trust = trust_in_user())
{
    Looked looked = look_up(root, kernel, trust);
    if(!looked.fault.empty())
        say_once(looked.fault + " (skipped)");
    if(!looked.found)
        return {};
    return {looked.path, std::move(looked.bytes), what + " " + looked.path, false, kernel.identity};
}

Library found_in(const Pack& pack, const CompiledKernel& kernel)
{
    try
    {
        if(std::string bytes = pack.find(kernel.key); !bytes.empty())
            return {{}, std::move(bytes), "pack " + pack.path(), false, kernel.identity};
    }
    catch(const Problem& problem)
    {
        say_once(std::string(problem.what()) + " (skipped)");
    }
    return {};
}

} // namespace

Store::Store(const Settings& settings, std::vector<std::string> beside, const std::string& file)
    : settings_(settings),
      beside_(std::move(beside)),
      trust_beside_(trust_in_owner_of(file))
{
}

Library Store::find(const CompiledKernel& kernel)
{
    for(const std::string& root : settings_.caches)
        if(Library found = found_in(root, kernel, "cache"))
            return found;
    std::call_once(opened_, [this] { open_packs(); });
    for(const Source& source : packs_)
        if(Library found = source.pack ? found_in(*source.pack, kernel)
                                       : found_in(source.directory, kernel, "pack", source.trust))
            return found;
    return {};
}

Library Store::find(const Kernel& kernel, const std::string& identity)
{
    if(Library found = find(compiled_by(identity, kernel)))
        return found;
    for(const Source& source : packs_)
        if(source.pack != nullptr)
            if(const CompiledKernel other = source.pack->of_another_compiler(kernel);
               !other.key.empty())
                if(Library found = found_in(*source.pack, other))
                    return found;
    return {};
}

void Store::open_packs()
{
    for(const std::string& path : settings_.packs)
    {
        if(!is_file(path) && !is_directory(path))
            say_once("QOLA_PACKS: no file " + path);
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
            say_once(std::string(problem.what()) + " (skipped)");
        }
    }
}

} // namespace qola_runtime
