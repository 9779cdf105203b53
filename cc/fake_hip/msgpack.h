// The part of MessagePack that AMDGPU metadata notes are written in.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fake_hip {

/// A value of a document; which member counts follows from the key it stands at.
struct Value
{
    std::uint64_t number = 0;
    std::string text;
    std::vector<Value> list;
    std::map<std::string, Value> map;

    /// The value at a key, an empty one where there is none.
    const Value& at(const std::string& key) const;
};

/// Reads one document. Throws std::runtime_error for anything it does not know.
Value parse_msgpack(std::string_view bytes);

} // namespace fake_hip
