// The embedded code objects as AITER's own hooks want them (AITER from d32b0cb
// on): AITER_EMBEDDED_HSA_HEADER names this file, which defines the map.
#pragma once

#include "qola_asm.h"

#include <string>
#include <string_view>
#include <unordered_map>

#define AITER_EMBEDDED_HSA_MAP ::qola_asm::hsa_map()

namespace qola_asm {

/// Returns key -> bytes of every embedded code object; made at the first call.
inline const std::unordered_map<std::string, std::string_view>& hsa_map()
{
    static const auto map = [] {
        std::unordered_map<std::string, std::string_view> made;
        for(const CodeObject& object : table())
        {
            made.emplace(object.key,
                         std::string_view(reinterpret_cast<const char*>(object.data), object.size));
        }
        return made;
    }();
    return map;
}

} // namespace qola_asm
