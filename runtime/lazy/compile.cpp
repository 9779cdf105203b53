#include "compile.h"

#include "files.h"
#include "ownership.h"
#include "process.h"
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
       (status.f_bavail * status.f_frsize < (1u << 20) || (status.f_files > 0 && status.f_favail < 8)))
        return full;
    return {};
}

constexpr int kIdentitySeconds = 120;

/// Returns the command that compiles a kernel library in a directory of the sources.
std::vector<std::string> command_of(const Compile& compile, const std::string& output)
{
    std::vector<std::string> command = compile.compiler.command;
    const auto add                   = [&](const std::vector<std::string>& arguments) {
        command.insert(command.end(), arguments.begin(), arguments.end());
    };
    const Index& index = compile.index;
    add(flags_of(index, compile.kernel));
    if(const auto headers = index.headers.find(compile.kernel.headers); headers != index.headers.end())
        for(const std::string& dir : headers->second.dirs)
            add({"-isystem", dir});
    add({"-include", compile.kernel.source_path(), compile.kernel.entry_path()});
    add(index.link_flags);
    for(const auto& [script, digest] : index.link_scripts)
        add({"-Wl,-T," + script});
    if(!compile.hip.empty())
        // The flags declare all inputs as HIP.
        add({"-x", "none", compile.hip});
    else if(compile.compiler.prefix.empty())
        add({"-lamdhip64"});
    else
        add({"-L" + compile.compiler.prefix + "/lib", "-lamdhip64"});
    add({"-o", output});
    return command;
}

/// Returns a compiler's environment with a directory for temporary files.
std::vector<std::string> compiler_environment(const std::string& temporary)
{
    // Other variables affect code (CPATH, CCC_OVERRIDE_OPTIONS, HIPCC_COMPILE_FLAGS_APPEND) and are in
    // no key. LC_ALL, because messages of a full disk are parsed.
    return environment_of_child({"PATH",
                                 "HOME",
                                 "USER",
                                 "LOGNAME",
                                 "LD_LIBRARY_PATH",
                                 "ROCM_PATH",
                                 "HIP_PATH",
                                 "HIP_PLATFORM",
                                 "HIP_CLANG_PATH"},
                                {"TMPDIR=" + temporary, "LC_ALL=C"});
}

#define QOLA_IDENTITY(...) #__VA_ARGS__
constexpr const char* kLine =
#include "identity.hip"
    ;
#undef QOLA_IDENTITY

/// Returns the source that a compiler preprocesses to report its identity.
std::string identity_source()
{
    return std::string("#include <hip/hip_version.h>\n#include <cstddef>\n") + kLine + "\n";
}

/// Finds the identity in the preprocessed source, with single blanks and without quotes; empty if
/// missing.
std::string identity_in(std::string_view preprocessed)
{
    for(const std::string_view line : lines(preprocessed))
    {
        std::vector<std::string> words = split(line, " \t\r\"");
        if(words.empty() || words.front() != "qola_identity")
            continue;
        words.erase(words.begin());
        return join(words, " ");
    }
    return {};
}

/// Adds the option that ignores configuration files, because their content is in no key. Some versions
/// of hipcc do not pass it on.
std::vector<std::string> without_configuration(std::vector<std::string> command)
{
    const std::string name = base_name(command.front());
    if(starts_with(name, "clang") || starts_with(name, "amdclang"))
        command.insert(command.begin() + 1, "--no-default-config");
    return command;
}

/// Returns the settings' command with an absolute program path, because compilers run in another
/// directory.
std::vector<std::string> command_of(const Settings& settings)
{
    if(settings.compiler.empty())
    {
        const auto found = std::find_if(settings.compilers.begin(), settings.compilers.end(), is_program);
        return found == settings.compilers.end() ? std::vector<std::string>{}
                                                 : without_configuration({absolute(*found)});
    }
    std::vector<std::string> command = settings.compiler;
    std::string& program             = command.front();
    if(program.find('/') != std::string::npos)
        program = absolute(program);
    else
        for(const std::string& directory : split(settings.path, ":"))
            if(is_program(directory + "/" + program))
            {
                program = absolute(directory + "/" + program);
                break;
            }
    if(!is_program(program))
        throw Problem("QOLA_COMPILER: no program " + program);
    return without_configuration(std::move(command));
}

std::string identity_of(const std::vector<std::string>& command, const Settings& settings)
{
    const TemporaryDirectory directory = make_private_directory(settings.temporary);
    const std::string source           = directory.path + "/identity.hip";
    const std::string output           = directory.path + "/identity.txt";
    const std::string log              = directory.path + "/log";
    write_file(source, identity_source(), 0600);
    Command run_it{command, compiler_environment(directory.path), directory.path, log, kIdentitySeconds};
    for(const char* argument : {"-x", "hip", "--offload-host-only", "-nogpulib", "-E", "-P", "-o"})
        run_it.arguments.emplace_back(argument);
    run_it.arguments.push_back(output);
    run_it.arguments.push_back(source);
    const Ended ended = run(run_it);
    if(!ended.well())
        throw Problem("the compiler " + command.front() + " cannot preprocess HIP (" + ended.text(kIdentitySeconds) +
                      "); set QOLA_COMPILER to ROCm's clang++:\n" + last_lines(read_file(log), 20));
    const std::string identity = identity_in(read_file(output));
    if(identity.empty())
        throw Problem("the compiler " + command.front() + " printed no identity");
    return identity;
}

/// Returns the arguments of a command that can affect code, each after a blank: all except those that
/// only name directories.
std::string deciding_arguments(const std::vector<std::string>& command)
{
    static constexpr std::string_view kPlaces[] = {"--rocm-path=",
                                                   "--sysroot=",
                                                   "-resource-dir=",
                                                   "--gcc-toolchain=",
                                                   "--gcc-install-dir=",
                                                   "--hip-path=",
                                                   "--rocm-device-lib-path=",
                                                   "-L",
                                                   "-B"};
    static constexpr std::string_view kOthers[] = {
        "-no-canonical-prefixes", "--no-default-config", "--start-no-unused-arguments", "--end-no-unused-arguments"};
    static constexpr std::string_view kBefore[] = {"-resource-dir", "--sysroot", "-L", "-B"};
    const auto is_in                            = [](const auto& names, const std::string& argument) {
        return std::find(std::begin(names), std::end(names), argument) != std::end(names);
    };
    std::string result;
    for(std::size_t at = 1; at < command.size(); ++at)
    {
        const std::string& argument = command[at];
        const bool is_place         = std::any_of(std::begin(kPlaces), std::end(kPlaces), [&](std::string_view start) {
            return starts_with(argument, start);
        });
        if(is_in(kBefore, argument))
            ++at;
        else if(!is_place && !is_in(kOthers, argument))
            result += " " + argument;
    }
    return result;
}

/// Returns PREFIX, the ROCm installation of a program: PREFIX/bin/hipcc, PREFIX/llvm/bin/clang++ or, with
/// resolved links, PREFIX/lib/llvm/bin/clang++.
std::string prefix_of(const std::string& program, const Settings& settings)
{
    if(!settings.rocm.empty())
        return settings.rocm;
    std::string prefix = directory_of(directory_of(real_path(program)));
    for(const char* part : {"/llvm", "/lib"})
        if(ends_with(prefix, part))
            prefix = directory_of(prefix);
    return prefix;
}

} // namespace

std::string compile(const Compile& compile, const std::string& directory)
{
    const std::string what   = compile.kernel.text();
    const std::string output = directory + "/kernel.so", log = directory + "/log", sources = directory + "/sources";
    const int timeout = compile.settings.compile_timeout;
    const Command command{command_of(compile, output), compiler_environment(directory), sources, log, timeout};
    const auto start = std::chrono::steady_clock::now();
    bool slow        = false;
    try
    {
        copy_sources(compile.root, compile.index, compile.kernel, sources);
        const Ended ended = run(command, [&] {
            slow = true;
            say("compiling " + what + " ...");
        });
        if(!ended.well())
        {
            const std::string printed = read_start(log, 1 << 24);
            throw CompileError("compiling " + what + " failed: " + ended.text(timeout) +
                                   (ended.timed_out ? " (QOLA_COMPILE_TIMEOUT)" : "") + "; the command is, in " +
                                   compile.root + ":\n" + join(command.arguments, " ") + "\n" +
                                   last_lines(printed, kShownLines),
                               ended.timed_out ? std::string{} : fault_of_place(directory, printed));
        }
        if(slow || compile.settings.verbose)
            say("compiled " + what + " in " + time_since(start));
        return read_file(output);
    }
    catch(const SystemError& error)
    {
        throw CompileError("compiling " + what + ": " + error.what(), fault_of_place(directory, error.what()));
    }
}

const Compiler* Compilers::find()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    if(!asked_)
    {
        asked_ = true;
        try
        {
            if(std::vector<std::string> command = command_of(settings_); !command.empty())
            {
                const std::string identity = identity_of(command, settings_) + deciding_arguments(command);
                const std::string prefix   = prefix_of(command.front(), settings_);
                found_.reset(new Compiler{std::move(command), identity, prefix});
            }
        }
        catch(const Problem& problem)
        {
            problem_ = problem.what();
        }
    }
    if(!problem_.empty())
        throw Problem(problem_);
    return found_.get();
}

} // namespace qola_runtime
