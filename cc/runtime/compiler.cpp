#include "compiler.h"

#include "files.h"
#include "identity.h"
#include "ownership.h"
#include "process.h"
#include "text.h"

#include <algorithm>

namespace qola_runtime {
namespace {

constexpr int kIdentitySeconds = 120;

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
        const auto found =
            std::find_if(settings.compilers.begin(), settings.compilers.end(), is_program);
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
    const std::string source = directory.path + "/identity.hip";
    const std::string output = directory.path + "/identity.txt";
    const std::string log    = directory.path + "/log";
    write_file(source, identity_source(), 0600);
    Command run_it{
        command, compiler_environment(directory.path), directory.path, log, kIdentitySeconds};
    for(const char* argument : {"-x", "hip", "--offload-host-only", "-nogpulib", "-E", "-P", "-o"})
        run_it.arguments.emplace_back(argument);
    run_it.arguments.push_back(output);
    run_it.arguments.push_back(source);
    const Ended ended = run(run_it);
    if(!ended.well())
        throw Problem("the compiler " + command.front() + " cannot preprocess HIP (" +
                      ended.text(kIdentitySeconds) + "); set QOLA_COMPILER to ROCm's clang++:\n" +
                      last_lines(read_file(log), 20));
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
    static constexpr std::string_view kOthers[] = {"-no-canonical-prefixes",
                                                   "--no-default-config",
                                                   "--start-no-unused-arguments",
                                                   "--end-no-unused-arguments"};
    static constexpr std::string_view kBefore[] = {"-resource-dir", "--sysroot", "-L", "-B"};
    const auto is_in = [](const auto& names, const std::string& argument) {
        return std::find(std::begin(names), std::end(names), argument) != std::end(names);
    };
    std::string result;
    for(std::size_t at = 1; at < command.size(); ++at)
    {
        const std::string& argument = command[at];
        const bool is_place =
            std::any_of(std::begin(kPlaces), std::end(kPlaces), [&](std::string_view start) {
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
                const std::string identity =
                    identity_of(command, settings_) + deciding_arguments(command);
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

std::string Compilers::places() const { return "none of " + join(settings_.compilers, ", "); }

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

} // namespace qola_runtime
