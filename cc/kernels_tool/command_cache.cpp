#include "commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/text.h"

#include <cstdio>
#include <set>

namespace qola_runtime {

int cache(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    const std::set<std::string> current =
        arguments.current ? tool.current_paths() : std::set<std::string>{};
    std::set<std::string> names;
    std::uint64_t bytes = 0, count = 0;
    for(const std::string& root : tool.settings.caches)
        for(const Found& item : files_in(root))
        {
            const Selection& selection = arguments.selection;
            struct stat status;
            if(item.kind != Found::entry || lstat(item.path.c_str(), &status) != 0 ||
               (arguments.current && current.count(path_below(root, item)) == 0) ||
               !(selection.empty() && selection.archs.empty()
                     ? true
                     : selection.has(item.name, item.arch)))
                continue;
            names.insert(item.name + " " + item.arch);
            ++count;
            bytes += static_cast<std::uint64_t>(status.st_size);
            if(!arguments.list_format)
                print(item.name + " " + item.arch + "  " + std::to_string(status.st_size) +
                      " bytes  " + item.path);
        }
    const std::string list = join({names.begin(), names.end()}, "\n") + (names.empty() ? "" : "\n");
    if(arguments.list_format)
        std::fputs(list.c_str(), stdout);
    else
        print(std::to_string(count) + " kernels, " + std::to_string(bytes) + " bytes");
    if(!arguments.write_list.empty())
        write_file(absolute(arguments.write_list), list, 0644);
    return 0;
}

} // namespace qola_runtime
