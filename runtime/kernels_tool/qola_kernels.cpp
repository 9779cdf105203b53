// qola-kernels manages the kernels of lazy libraries in caches and packs.
#include "runtime/lazy/files.h"
#include "runtime/lazy/text.h"
#include "tool.h"

#include <cstdio>

namespace {

using namespace qola_runtime;

int run_tool(const std::vector<std::string>& words)
{
    const Arguments arguments = arguments_of(words);
    if(arguments.help)
    {
        std::fputs(help_of(arguments.command).c_str(), stdout);
        return 0;
    }
    Settings own = settings();
    for(const std::string& note : own.notes)
        say_once(note);
    if(!own.errors.empty())
        throw UsageError(join(own.errors, "\nqola: "));
    // QOLA_COMPILE applies to libraries. A command that compiles always may.
    own.compile = true;
    if(!arguments.cache_dir.empty())
    {
        own.cache  = absolute(arguments.cache_dir);
        own.caches = {own.cache};
    }
    Tool tool(arguments, std::move(own), real_path("/proc/self/exe"));
    return arguments.run(tool);
}

} // namespace

int main(int argc, char** argv)
{
    try
    {
        return run_tool({argv + 1, argv + argc});
    }
    catch(const UsageError& error)
    {
        say(std::string(error.what()) + "\nqola: qola-kernels --help shows the usage");
        return 2;
    }
    catch(const std::exception& error)
    {
        say(error.what());
        return 1;
    }
}
