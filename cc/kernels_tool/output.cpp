#include "output.h"

#include "cc/runtime/files.h"
#include "cc/runtime/text.h"

#include <set>

#include <unistd.h>

namespace qola_runtime {

Item packed(Tool& tool, const ModuleKernel& kernel, Library library)
{
    const CompiledKernel own{
        kernel.kernel->name, kernel.kernel->arch, key_in(library.bytes), library.identity};
    const std::uint64_t size = library.bytes.size();
    if(library.made && library.path.empty())
        return {own, size, [bytes = std::move(library.bytes)] { return bytes; }};
    return {own, size, [&tool, own] { return tool.store.find(own).bytes; }};
}

void warn_of_compilers(const std::string& output,
                       const std::vector<ModuleKernel>& kernels,
                       const std::vector<Item>& items)
{
    if(ends_with(output, ".qpack"))
        return;
    std::set<std::string> own;
    for(const ModuleKernel& each : kernels)
        own.insert(key_of(*each.kernel, each.module->index.identity));
    for(const Item& item : items)
        if(own.count(item.kernel.key) == 0)
        {
            say(output + " has kernels of " + item.kernel.identity +
                ", not of the libraries' compiler: machines without it find them only in a file "
                ".qpack");
            return;
        }
}

void write_pack(const std::string& output, const std::vector<Item>& items)
{
    if(ends_with(output, ".qpack"))
    {
        write_pack_file(output, items);
        return;
    }
    std::vector<std::string> written;
    try
    {
        for(const Item& item : items)
        {
            const std::string path = output + "/" + entry_path(item.kernel);
            make_directories(directory_of(path), 0755);
            const bool is_new = !is_file(path);
            write_file(path, item.read(), 0644);
            if(is_new)
                written.push_back(path);
        }
    }
    catch(...)
    {
        for(const std::string& path : written)
            unlink(path.c_str());
        throw;
    }
}

} // namespace qola_runtime
