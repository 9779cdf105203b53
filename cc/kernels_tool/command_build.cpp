#include "commands.h"

#include "cc/runtime/jobs.h"
#include "cc/runtime/text.h"
#include "output.h"

#include <atomic>
#include <chrono>
#include <cstdio>

namespace qola_runtime {
namespace {

/// Compiles kernels concurrently.
class Builder
{
    public:
    Builder(Tool& tool, const std::vector<ModuleKernel>& kernels, bool keeps_items)
        : items(keeps_items ? kernels.size() : 0),
          tool_(tool),
          kernels_(kernels)
    {
    }

    void run()
    {
        const int asked = tool_.arguments.jobs;
        side_by_side(kernels_.size(),
                     compiles_at_a_time(asked > 0 ? asked : tool_.settings.jobs),
                     [this](std::size_t at) { work(at); });
    }

    std::vector<Item> items; ///< for a pack, in the order of the kernels
    std::atomic<int> compiled{0}, cached{0}, failed{0};

    private:
    void work(std::size_t at)
    {
        try
        {
            make(at);
        }
        catch(const std::exception& error)
        {
            ++done_;
            ++failed;
            say(error.what());
        }
    }

    void make(std::size_t at)
    {
        const Kernel& kernel  = *kernels_[at].kernel;
        const Sources& source = *kernels_[at].module;
        const Module module{source.index.identity, source.root, {}, tool_.trust};
        const auto start = std::chrono::steady_clock::now();
        Library library  = tool_.arguments.force ? tool_.obtainer.compile_anew(kernel, module)
                                                 : tool_.obtainer.obtain(kernel, module);
        if(library.made && library.path.empty() && items.empty())
            throw Problem(kernel.name + " for " + kernel.arch + " was compiled, but could not be stored");
        ++(library.made ? compiled : cached);
        const int number = ++done_;
        if(library.made || tool_.settings.verbose)
            print("[" + std::to_string(number) + "/" + std::to_string(kernels_.size()) + "] " +
                  kernel.name + " " + kernel.arch + ": " + library.origin + ", " +
                  time_since(start));
        std::fflush(stdout);
        if(!items.empty())
            items[at] = packed(tool_, kernels_[at], std::move(library));
    }

    Tool& tool_;
    const std::vector<ModuleKernel>& kernels_;
    std::atomic<int> done_{0};
};

} // namespace

int build(Tool& tool)
{
    const std::string output = output_of(tool, false);
    const Kernels kernels    = selected(tool, false);
    Builder builder(tool, kernels.found, !output.empty());
    builder.run();
    print(std::to_string(builder.compiled) + " compiled, " + std::to_string(builder.cached) +
          " cached, " + std::to_string(builder.failed) + " failed" +
          (kernels.missing.empty() ? ""
                                   : ", " + std::to_string(kernels.missing.size()) + " unknown"));
    if(builder.failed > 0 || !kernels.missing.empty())
        return 1;
    if(!output.empty())
    {
        write_pack(output, builder.items);
        warn_of_compilers(output, kernels.found, builder.items);
    }
    return 0;
}

} // namespace qola_runtime
