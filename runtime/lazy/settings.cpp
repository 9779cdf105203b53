#include "settings.h"

#include "files.h"
#include "text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include <pwd.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

/// Reads variables, and records errors and notes.
class Reader
{
    public:
    Reader(const Variable& variable, Settings& settings) : variable_(variable), settings_(settings) {}

    std::string text(const char* name) const
    {
        const char* value = variable_(name);
        return value ? value : "";
    }

    /// Returns the first variable that is set: `name`, then ck-jit's names.
    std::string text(const char* name, std::initializer_list<const char*> old_names)
    {
        std::string value = text(name);
        for(const char* old : old_names)
            if(value.empty() && !(value = text(old)).empty())
                settings_.notes.push_back(std::string(old) + " is deprecated, use " + name);
        return value;
    }

    void seconds(const char* name, long least, int& value)
    {
        const std::string given = text(name);
        if(given.empty())
            return;
        if(const auto found = number(given, least, 1000000))
            value = static_cast<int>(*found);
        else
            refuse(name, given, "a whole number of seconds from " + std::to_string(least) + " to 1000000");
    }

    void refuse(const char* name, const std::string& value, const std::string& right)
    {
        settings_.errors.push_back(std::string(name) + "=" + value + " is invalid: expected " + right);
    }

    private:
    const Variable& variable_;
    Settings& settings_;
};

void read_mode(Reader& reader, Settings& settings)
{
    if(const std::string mode = reader.text("QOLA_LAZY"); !mode.empty())
    {
        settings.compile    = mode != "never";
        settings.background = mode == "background";
        if(mode != "auto" && mode != "never" && mode != "background")
            reader.refuse("QOLA_LAZY",
                          mode,
                          "auto (missing kernels are compiled), background (they are, and calls "
                          "return -4 until then) or never (a missing kernel is an error)");
        return;
    }
    const std::string given = reader.text("NVTE_CK_JIT");
    std::string mode        = given;
    std::transform(mode.begin(), mode.end(), mode.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto is_one_of    = [&](std::initializer_list<const char*> values) {
        return std::find(values.begin(), values.end(), mode) != values.end();
    };
    if(is_one_of({"0", "false", "off"}))
        settings.compile = false;
    else if(!mode.empty() && !is_one_of({"1", "true", "on", "auto"}))
        reader.refuse("NVTE_CK_JIT",
                      given,
                      "0, false or off (no kernel is compiled), or 1, true, on or auto; "
                      "qola's own setting is QOLA_LAZY=auto|background|never");
}

/// Returns the home directory in passwd or, like a shell, the root directory for unknown users.
std::string login_home()
{
    char buffer[16384];
    struct passwd entry, *found = nullptr;
    if(getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr)
        return found->pw_dir;
    return {};
}

/// Returns qola's cache directory by the rule in docs/guide/setup.md#where-things-are-kept.
std::string cache_home(const Reader& reader)
{
    const std::pair<const char*, const char*> places[] = {
        {"QOLA_CACHE_HOME", ""}, {"XDG_CACHE_HOME", "/qola"}, {"HOME", "/.cache/qola"}};
    for(const auto& [name, below] : places)
        if(const std::string path = reader.text(name); starts_with(path, "/"))
            return path + below;
    return login_home() + "/.cache/qola";
}

void read_places(Reader& reader, Settings& settings)
{
    settings.caches = split(reader.text("QOLA_CACHE", {"CK_JIT_CACHE_DIR"}), ":");
    if(!settings.caches.empty())
        settings.cache = settings.caches.front();
    else
    {
        settings.cache  = cache_home(reader) + "/kernels";
        settings.caches = {settings.cache, "/var/cache/qola/kernels"};
    }
    settings.packs  = split(reader.text("QOLA_PACKS"), ":");
    settings.root   = reader.text("QOLA_ROOT", {"CK_JIT_ROOT", "NVTE_CK_JIT_DIR"});
    settings.record = reader.text("QOLA_RECORD");
    if(const std::string manifest = reader.text("CK_JIT_MANIFEST"); !manifest.empty() && settings.root.empty())
    {
        if(base_name(manifest) == "kernels.index")
        {
            settings.module_root = directory_of(manifest);
            settings.notes.push_back("CK_JIT_MANIFEST is deprecated, use QOLA_ROOT");
        }
        else
            settings.notes.push_back("CK_JIT_MANIFEST=" + manifest +
                                     " is ignored: qola reads kernels.index; use QOLA_ROOT");
    }
}

void read_compilers(Reader& reader, Settings& settings)
{
    settings.path         = reader.text("PATH");
    settings.rocm         = reader.text("ROCM_PATH");
    settings.compiler     = split(reader.text("QOLA_COMPILER"), " \t\n");
    const std::string hip = reader.text("HIP_PATH");
    if(!settings.rocm.empty())
        settings.compilers.push_back(settings.rocm + "/llvm/bin/clang++");
    if(!hip.empty())
    {
        settings.compilers.push_back(hip + "/llvm/bin/clang++");
        settings.compilers.push_back(hip + "/../llvm/bin/clang++");
    }
    settings.compilers.push_back("/opt/rocm/llvm/bin/clang++");
    for(const char* name : {"amdclang++", "hipcc"})
        for(const std::string& directory : split(settings.path, ":"))
            settings.compilers.push_back(directory + "/" + name);
}

/// Reads the number of concurrent compiles. Many programs use MAX_JOBS, so an invalid value is ignored
/// with a note.
void read_jobs(const Reader& reader, Settings& settings)
{
    for(const char* name : {"CK_JIT_JOBS", "MAX_JOBS"})
    {
        const std::string given = reader.text(name);
        if(given.empty())
            continue;
        if(const auto found = number(given, 1, 4096))
        {
            settings.jobs = static_cast<int>(*found);
            return;
        }
        settings.notes.push_back(std::string(name) + "=" + given +
                                 " is ignored: expected a number of compiles from 1 to 4096");
    }
}

bool is_none(const std::string& level) { return level.empty() || level == "0"; }

} // namespace

Settings settings_of(const Variable& variable)
{
    Settings settings;
    Reader reader(variable, settings);
    read_mode(reader, settings);
    read_places(reader, settings);
    read_compilers(reader, settings);
    read_jobs(reader, settings);
    reader.seconds("QOLA_COMPILE_TIMEOUT", 1, settings.compile_timeout);
    // Waiting covers a compile that another process has just started.
    settings.wait = settings.compile_timeout + 60;
    reader.seconds("QOLA_WAIT", 0, settings.wait);
    if(const std::string own = reader.text("QOLA_VERBOSE"); !own.empty())
    {
        settings.verbose = own == "1";
        if(own != "0" && own != "1")
            reader.refuse("QOLA_VERBOSE", own, "0 or 1");
    }
    else // Any level of ck-jit's is all that there is here.
        settings.verbose = !is_none(reader.text("QOLA_VERBOSE", {"CK_JIT_VERBOSE"}));
    settings.temporary = reader.text("TMPDIR");
    if(settings.temporary.empty())
        settings.temporary = "/tmp";
    return settings;
}

const Settings& settings()
{
    static const Settings& read = *[] {
        auto* found = new Settings(settings_of([](const char* name) { return std::getenv(name); }));
        // Relative paths refer to the current directory at the start.
        const auto fix = [](std::string& path) { path = path.empty() ? path : absolute(path); };
        for(std::string* path : {&found->cache, &found->root, &found->module_root, &found->temporary, &found->record})
            fix(*path);
        for(auto* paths : {&found->caches, &found->packs})
            std::for_each(paths->begin(), paths->end(), fix);
        return found;
    }();
    return read;
}

std::vector<std::string> environment_of_child(const std::vector<std::string>& kept,
                                              const std::vector<std::string>& with)
{
    std::vector<std::string> result = with;
    for(char** at = environ; at != nullptr && *at != nullptr; ++at)
    {
        const std::string line = *at;
        const auto is_of       = [&](const std::string& name) { return starts_with(line, name + "="); };
        if(std::any_of(kept.begin(), kept.end(), is_of))
            result.push_back(line);
    }
    return result;
}

} // namespace qola_runtime
