// Functions on text, messages on standard error, and the exceptions that carry them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace qola_runtime {

/// Splits at separators, without empty parts.
std::vector<std::string> split(std::string_view text, std::string_view separators);

/// Splits at tabs, with empty parts.
std::vector<std::string_view> fields(std::string_view line);

/// Splits into lines, without line feeds.
std::vector<std::string_view> lines(std::string_view text);

/// Joins parts with `between`.
std::string join(const std::vector<std::string>& parts, std::string_view between);

bool starts_with(std::string_view text, std::string_view start);
bool ends_with(std::string_view text, std::string_view end);

/// Parses a decimal number from `least` to `most`; nothing for any other text.
std::optional<long> number(std::string_view text, long least, long most);

/// Encodes a number as little-endian bytes.
std::string number_bytes(std::uint64_t value, int bytes);

/// Decodes a little-endian number at a position. The bytes must exist.
std::uint64_t number_at(std::string_view text, std::size_t place, int bytes);

/// Escapes as \xNN control characters except tab and line feed, bidirectional marks, and bytes that are
/// not UTF-8.
std::string visible(std::string_view text);

/// Returns at most `count` last lines of a text.
std::string last_lines(std::string_view text, std::size_t count);

/// Formats the time since `start`, such as "23 s" or "1.4 ms".
std::string time_since(std::chrono::steady_clock::time_point start);

/// A kernel is unavailable, or a command failed. The message for the user names the fault, its place and
/// its correction.
class Problem : public std::runtime_error
{
    public:
    using std::runtime_error::runtime_error;
};

/// A call of the operating system failed.
class SystemError : public Problem
{
    public:
    /// `what` is the call and its purpose, `code` its errno.
    SystemError(const std::string& what, int code);
    const int code;
};

/// Writes "qola: <text>" and a line feed in one call, so that lines of processes do not mix, with control
/// characters escaped.
void say(const std::string& text);

/// Does the same, once per text and process.
void say_once(const std::string& text);

/// Does the same, once per kind and process.
void say_once_of(const std::string& kind, const std::string& text);

} // namespace qola_runtime
