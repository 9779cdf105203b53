#include "commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/ownership.h"
#include "cc/runtime/text.h"

#include <set>

namespace qola_runtime {
namespace {

/// Checks what lies below a directory; says each finding and returns their number.
int verify_directory(const std::string& root)
{
    int findings       = 0;
    const auto finding = [&](const std::string& text) {
        ++findings;
        print(text);
    };
    if(const std::string why = distrust_of_root(root); !why.empty())
        finding(why);
    std::set<std::string> directories;
    for(const Found& item : files_in(root))
    {
        if(directories.insert(item.name).second)
            if(const std::string why = distrust(root + "/" + item.name); !why.empty())
                finding(why);
        if(item.kind == Found::unknown)
            finding(item.path + " is none of qola's");
        if(item.kind != Found::entry)
            continue;
        if(const std::string why = distrust(item.path); !why.empty())
        {
            finding(why);
            continue;
        }
        try
        {
            const std::string bytes = read_file(item.path);
            if(const std::string fault = fault_of_entry(bytes, {}); !fault.empty())
                finding(item.path + " " + fault);
            else if(const std::string key = key_in(bytes); key.substr(0, 32) != item.key)
                finding(item.path + " has the key " + key + ", which is not that of its name");
        }
        catch(const Problem& problem)
        {
            finding(problem.what());
        }
    }
    return findings;
}

int verify_pack(const std::string& path)
{
    int findings = 0;
    try
    {
        const Pack pack(path);
        for(const auto& [key, place] : pack.places())
            try
            {
                static_cast<void>(pack.find(key));
            }
            catch(const Problem& problem)
            {
                ++findings;
                print(problem.what());
            }
    }
    catch(const Problem& problem)
    {
        ++findings;
        print(problem.what());
    }
    return findings;
}

} // namespace

int verify(Tool& tool)
{
    int findings = 0;
    if(tool.arguments.operands.empty())
        for(const std::string& root : tool.settings.caches)
            findings += verify_directory(root);
    for(const std::string& given : tool.arguments.operands)
    {
        const std::string path = absolute(given);
        if(!is_directory(path))
        {
            findings += verify_pack(path);
            continue;
        }
        findings += verify_directory(path);
        for(const std::string& name : names_in(path))
            if(ends_with(name, ".qpack"))
                findings += verify_pack(path + "/" + name);
    }
    return findings == 0 ? 0 : 1;
}

} // namespace qola_runtime
