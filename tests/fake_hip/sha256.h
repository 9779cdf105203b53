// SHA-256 (FIPS 180-4), so that a launch can say which code object it came from.
#pragma once

#include <string>
#include <string_view>

namespace fake_hip {

/// Digest of bytes, as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

} // namespace fake_hip
