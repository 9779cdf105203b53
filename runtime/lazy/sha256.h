// SHA-256 (FIPS 180-4), which names and checks kernels in caches, packs and the fake HIP runtime.
#pragma once

#include <string>
#include <string_view>

namespace qola_runtime {

/// Returns the digest as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

/// Decodes hexadecimal digits; empty for an odd number of digits or other characters.
std::string bytes_of_hex(std::string_view hex);

/// Encodes bytes as hexadecimal digits.
std::string hex_of_bytes(std::string_view bytes);

} // namespace qola_runtime
