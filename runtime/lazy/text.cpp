#include "text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include <unistd.h>

namespace qola_runtime {
namespace {

/// Returns the size of the UTF-8 character at the start of a text; 0 if there is none.
std::size_t character_at(std::string_view text)
{
    const auto byte        = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned first   = byte(0);
    const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if((first >= 0x80 && first < 0xc2) || first > 0xf4 || size > text.size())
        return 0;
    for(std::size_t at = 1; at < size; ++at)
        if((byte(at) & 0xc0) != 0x80)
            return 0;
    // Reject overlong forms, surrogates, and code points beyond the last.
    const bool wrong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                       (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f);
    return wrong ? 0 : size;
}

/// Returns whether a terminal interprets a UTF-8 character instead of showing it.
bool obeyed(std::string_view character)
{
    if(character == "\n" || character == "\t")
        return false;
    const auto between = [&](std::string_view least, std::string_view most) {
        return character.size() == least.size() && character >= least && character <= most;
    };
    // The same as qola_base.errors.unseen has.
    return between({"\0", 1}, "\x1f") || character == "\x7f" || between("\xc2\x80", "\xc2\x9f") ||
           character == "\xd8\x9c" || between("\xe2\x80\x8e", "\xe2\x80\x8f") ||
           between("\xe2\x80\xa8", "\xe2\x80\xae") || between("\xe2\x81\xa6", "\xe2\x81\xa9");
}

} // namespace

std::vector<std::string> split(std::string_view text, std::string_view separators)
{
    std::vector<std::string> parts;
    while(!text.empty())
    {
        const std::size_t end = std::min(text.find_first_of(separators), text.size());
        if(end > 0)
            parts.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

std::vector<std::string_view> fields(std::string_view line)
{
    std::vector<std::string_view> parts;
    for(;;)
    {
        const std::size_t end = line.find('\t');
        parts.push_back(line.substr(0, end));
        if(end == std::string_view::npos)
            return parts;
        line.remove_prefix(end + 1);
    }
}

std::vector<std::string_view> lines(std::string_view text)
{
    std::vector<std::string_view> result;
    while(!text.empty())
    {
        const std::size_t end = std::min(text.find('\n'), text.size());
        result.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return result;
}

std::string join(const std::vector<std::string>& parts, std::string_view between)
{
    std::string text;
    for(const std::string& part : parts)
        text.append(text.empty() ? std::string_view{} : between).append(part);
    return text;
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

bool ends_with(std::string_view text, std::string_view end)
{
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::optional<long> number(std::string_view text, long least, long most)
{
    long value             = 0;
    const char* const last = text.data() + text.size();
    const auto [end, code] = std::from_chars(text.data(), last, value);
    if(code != std::errc{} || end != last || value < least || value > most)
        return std::nullopt;
    return value;
}

std::string number_bytes(std::uint64_t value, int bytes)
{
    std::string text;
    for(int at = 0; at < bytes; ++at)
        text += static_cast<char>(value >> (8 * at));
    return text;
}

std::uint64_t number_at(std::string_view text, std::size_t place, int bytes)
{
    std::uint64_t value = 0;
    for(int at = bytes - 1; at >= 0; --at)
        value = value << 8 | static_cast<unsigned char>(text[place + static_cast<std::size_t>(at)]);
    return value;
}

std::string visible(std::string_view text)
{
    constexpr std::string_view digits = "0123456789abcdef";
    std::string seen;
    while(!text.empty())
    {
        const std::size_t size      = character_at(text);
        const std::string_view part = text.substr(0, std::max<std::size_t>(size, 1));
        if(size > 0 && !obeyed(part))
            seen += part;
        else
            for(const char c : part)
            {
                const auto byte = static_cast<unsigned char>(c);
                seen.append("\\x").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
            }
        text.remove_prefix(part.size());
    }
    return seen;
}

std::string last_lines(std::string_view text, std::size_t count)
{
    while(!text.empty() && (text.back() == '\n' || text.back() == ' '))
        text.remove_suffix(1);
    std::size_t at = text.size();
    while(count > 0 && at != std::string_view::npos && at > 0)
    {
        at = text.rfind('\n', at - 1);
        --count;
    }
    return std::string(at == std::string_view::npos || at == 0 ? text : text.substr(at + 1));
}

std::string time_since(std::chrono::steady_clock::time_point start)
{
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const double seconds                     = took.count();
    char text[32];
    if(seconds < 0.1)
        std::snprintf(text, sizeof text, "%.1f ms", seconds * 1000);
    else if(seconds < 10)
        std::snprintf(text, sizeof text, "%.1f s", seconds);
    else
        std::snprintf(text, sizeof text, "%.0f s", seconds);
    return text;
}

SystemError::SystemError(const std::string& what, int code) : Problem(what + ": " + std::strerror(code)), code(code) {}

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
