#include "compile.h"

#include "files.h"
#include "process.h"
#include "sources.h"
#include "text.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <signal.h>
#include <sys/statvfs.h>

namespace qola_runtime {
namespace {

constexpr std::size_t kShownLines = 20;

const std::vector<std::string>&
flags_at(const std::map<std::string, std::vector<std::string>>& flags, const std::string& name)
{
    static const std::vector<std::string> none;
    const auto found = flags.find(name);
    return found == flags.end() ? none : found->second;
}

/// Returns the fault of a failed compile's directory; empty if there is none. On a full disk the log may
/// be empty.
std::string fault_of_place(const std::string& directory, const std::string& log)
{
    if(!is_directory(directory))
        return directory + " was removed during the compile";
    const std::string full = "no room for the compile in " + directory;
    for(const int code : {ENOSPC, EDQUOT, EFBIG, EROFS})
        if(log.find(std::strerror(code)) != std::string::npos)
            return full;
    if(log.find(strsignal(SIGXFSZ)) != std::string::npos)
        return full;
    struct statvfs status;
    if(statvfs(directory.c_str(), &status) == 0 &&
       (status.f_bavail * status.f_frsize < (1u << 20) ||
        (status.f_files > 0 && status.f_favail < 8)))
        return full;
    return {};
}

std::string log_in(const std::string& path)
{
    try
    {
        return read_file(path);
    }
    catch(const Problem&)
    {
        return {};
    }
}

} // namespace

std::vector<std::string> compile_command(const Compiler& compiler,
                                         const Index& index,
                                         const Kernel& kernel,
                                         const std::string& hip,
                                         const std::string& output)
{
    std::vector<std::string> command = compiler.command;
    const auto add                   = [&](const std::vector<std::string>& arguments) {
        command.insert(command.end(), arguments.begin(), arguments.end());
    };
    add(index.flags);
    add(flags_at(index.arch_flags, kernel.arch));
    add(flags_at(index.package_flags, kernel.package));
    add({"--offload-arch=" + kernel.arch, "-cuid=" + kernel.name});
    if(const auto headers = index.headers.find(kernel.headers); headers != index.headers.end())
        for(const std::string& dir : headers->second.dirs)
            add({"-isystem", dir});
    add({"-include", kernel.source_path(), kernel.entry_path()});
    add(index.link_flags);
    for(const auto& [script, digest] : index.link_scripts)
        add({"-Wl,-T," + script});
    if(!hip.empty())
        // The flags declare all inputs as HIP.
        add({"-x", "none", hip});
    else if(compiler.prefix.empty())
        add({"-lamdhip64"});
    else
        add({"-L" + compiler.prefix + "/lib", "-lamdhip64"});
    add({"-o", output});
    return command;
}

std::string compile(const Compile& compile, const std::string& directory)
{
    const std::string what   = compile.kernel.name + " for " + compile.kernel.arch;
    const std::string output = directory + "/kernel.so", log = directory + "/log",
                      sources = directory + "/sources";
    const Command command{
        compile_command(compile.compiler, compile.index, compile.kernel, compile.hip, output),
        compiler_environment(directory),
        sources,
        log,
        compile.timeout};
    const auto start = std::chrono::steady_clock::now();
    bool slow        = false;
    Ended ended;
    try
    {
        copy_sources(compile.root, compile.index, compile.kernel, sources);
        ended = run(command, [&] {
            slow = true;
            say("compiling " + what + " ...");
        });
    }
    catch(const SystemError& error)
    {
        throw CompileError("compiling " + what + ": " + error.what(),
                           fault_of_place(directory, error.what()));
    }
    const std::string took = time_since(start);
    if(!ended.well())
    {
        const std::string printed = log_in(log);
        throw CompileError("compiling " + what + " failed: " + ended.text(compile.timeout) +
                               (ended.timed_out ? " (QOLA_COMPILE_TIMEOUT)" : "") +
                               "; the command is, in " + compile.root + ":\n" +
                               join(command.arguments, " ") + "\n" +
                               last_lines(printed, kShownLines),
                           ended.timed_out ? std::string{} : fault_of_place(directory, printed));
    }
    if(slow || compile.verbose)
        say("compiled " + what + " in " + took);
    try
    {
        return read_file(output);
    }
    catch(const SystemError& error)
    {
        throw CompileError("compiling " + what + ": " + error.what(),
                           fault_of_place(directory, {}));
    }
}

} // namespace qola_runtime
