#include "tool_output.h"

#include "cc/runtime/files.h"
#include "cc/runtime/text.h"

#include <unistd.h>

namespace qola_runtime {

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
            const std::string path = output + "/" + entry_path(item.wanted);
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
