// SHA-256 (FIPS 180-4): what names and guards kernels, here and in the tests' HIP runtime.
#ifndef QOLA_RUNTIME_SHA256_H
#define QOLA_RUNTIME_SHA256_H

#include <string>
#include <string_view>

namespace qola_runtime {

/// Digest of bytes, as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

/// The bytes that hexadecimal digits stand for; empty where they are none, or an odd number.
std::string bytes_of_hex(std::string_view hex);

/// Bytes as hexadecimal digits.
std::string hex_of_bytes(std::string_view bytes);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_SHA256_H
