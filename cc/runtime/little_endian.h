// Little-endian numbers in files.
#ifndef QOLA_RUNTIME_LITTLE_ENDIAN_H
#define QOLA_RUNTIME_LITTLE_ENDIAN_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qola_runtime {

/// Encodes a number as `size` bytes.
inline std::string number_bytes(std::uint64_t value, int bytes)
{
    std::string text;
    for(int at = 0; at < bytes; ++at)
        text += static_cast<char>(value >> (8 * at));
    return text;
}

/// Decodes a number of `size` bytes at a position. The bytes must exist.
inline std::uint64_t number_at(std::string_view text, std::size_t place, int bytes)
{
    std::uint64_t value = 0;
    for(int at = bytes - 1; at >= 0; --at)
        value = value << 8 | static_cast<unsigned char>(text[place + static_cast<std::size_t>(at)]);
    return value;
}

} // namespace qola_runtime

#endif // QOLA_RUNTIME_LITTLE_ENDIAN_H
