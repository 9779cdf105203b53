#include "commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/ownership.h"
#include "cc/runtime/sources.h"
#include "cc/runtime/text.h"

#include <set>

namespace qola_runtime {
namespace {

/// Prints and counts findings.
struct Findings
{
    int count = 0;

    /// Adds a finding, unless the text is empty; returns whether it is.
    bool add(const std::string& text)
    {
        if(text.empty())
            return true;
        ++count;
        print(text);
        return false;
    }

    /// Adds the Problem that a check throws.
    template <class Check>
    void add_problem_of(const Check& check)
    {
        try
        {
            check();
        }
        catch(const Problem& problem)
        {
            add(problem.what());
        }
    }
};

/// Checks the entries below a directory.
void verify_directory(const std::string& root, Findings& findings)
{
    findings.add(distrust_of_directory(root));
    std::set<std::string> directories;
    for(const Found& item : files_in(root))
    {
        if(directories.insert(item.name).second)
            findings.add(distrust(root + "/" + item.name));
        if(item.kind == Found::unknown)
            findings.add(item.path + " is not a file of qola");
        if(item.kind != Found::entry || !findings.add(distrust(item.path)))
            continue;
        findings.add_problem_of([&] {
            const std::string bytes = read_file(item.path);
            if(const std::string fault = fault_of_entry(bytes, {}); !fault.empty())
                findings.add(item.path + " " + fault);
            else if(const std::string key = key_in(bytes); key.substr(0, 32) != item.key)
                findings.add(item.path + " has the key " + key + ", which differs from its name");
        });
    }
}

void verify_sources(Tool& tool, Findings& findings)
{
    for(const Sources& module : tool.modules())
        for(const auto& faults : {faults_of_directory(module.root, module.index, tool.trust),
                                  faults_of_files(module.root, module.index)})
            for(const std::string& fault : faults)
                findings.add(fault);
}

void verify_pack(const std::string& path, Findings& findings)
{
    findings.add_problem_of([&] {
        const Pack pack(path);
        for(const auto& place : pack.places())
            findings.add_problem_of([&] { static_cast<void>(pack.find(place.first)); });
    });
}

} // namespace

int verify(Tool& tool)
{
    Findings findings;
    if(tool.arguments.operands.empty())
    {
        for(const std::string& root : tool.settings.caches)
            verify_directory(root, findings);
        // Machines without sources can check their caches too.
        if(!tool.root.empty())
            findings.add_problem_of([&] { verify_sources(tool, findings); });
    }
    for(const std::string& given : tool.arguments.operands)
    {
        const std::string path = absolute(given);
        if(!is_directory(path))
        {
            verify_pack(path, findings);
            continue;
        }
        verify_directory(path, findings);
        for(const std::string& name : names_in(path))
            if(ends_with(name, ".qpack"))
                verify_pack(path + "/" + name, findings);
    }
    return findings.count == 0 ? 0 : 1;
}

} // namespace qola_runtime
