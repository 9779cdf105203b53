// Small functions on text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
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

std::string lower_case(std::string text);

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

} // namespace qola_runtime
