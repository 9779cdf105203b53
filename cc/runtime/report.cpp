#include "report.h"

#include "text.h"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include <unistd.h>

namespace qola_runtime {

SystemError::SystemError(const std::string& what, int code)
    : Problem(what + ": " + std::strerror(code)),
      code(code)
{
}

void say(const std::string& text)
{
    const std::string line = "qola: " + visible(text) + "\n";
    for(std::size_t at = 0; at < line.size();)
    {
        const ssize_t written = write(STDERR_FILENO, line.data() + at, line.size() - at);
        if(written < 0 && errno != EINTR)
            return;
        at += written > 0 ? static_cast<std::size_t>(written) : 0;
    }
}

void say_once(const std::string& text) { say_once_of(text, text); }

void say_once_of(const std::string& kind, const std::string& text)
{
    // Never freed, because kernels may be requested while the process ends.
    static std::mutex& mutex           = *new std::mutex;
    static std::set<std::string>& said = *new std::set<std::string>;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if(!said.insert(kind).second)
            return;
    }
    say(text);
}

} // namespace qola_runtime
