#include "text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>

namespace qola_runtime {

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

std::string lower_case(std::string text)
{
    for(char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

bool starts_with(std::string_view text, std::string_view start)
{
    return text.substr(0, start.size()) == start;
}

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

} // namespace qola_runtime
