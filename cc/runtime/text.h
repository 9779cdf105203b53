// Small functions on text.
#ifndef QOLA_RUNTIME_TEXT_H
#define QOLA_RUNTIME_TEXT_H

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qola_runtime {

/// The parts between separators; empty ones are left out.
std::vector<std::string> split(std::string_view text, std::string_view separators);

/// The parts between tabs, empty ones included.
std::vector<std::string_view> fields(std::string_view line);

/// The lines of a text, without their ends.
std::vector<std::string_view> lines(std::string_view text);

/// Parts with `between` between them.
std::string join(const std::vector<std::string>& parts, std::string_view between);

std::string lower_case(std::string text);

bool starts_with(std::string_view text, std::string_view start);
bool ends_with(std::string_view text, std::string_view end);

/// A decimal number from `least` to `most`; nothing for anything else.
std::optional<long> number(std::string_view text, long least, long most);

/// A text with \xNN in place of what a terminal would obey: bytes of control characters but tabs and line
/// ends, of marks that turn the direction of writing, and those that are not UTF-8.
std::string visible(std::string_view text);

/// The last lines of a text, at most `count`.
std::string last_lines(std::string_view text, std::size_t count);

/// The time since then for people, such as "23 s" or "1.4 ms".
std::string time_since(std::chrono::steady_clock::time_point start);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_TEXT_H
