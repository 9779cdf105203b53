#include "msgpack.h"

namespace fake_hip {
namespace {

class Reader
{
    public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    Value value()
    {
        const auto tag = static_cast<unsigned>(integer(1));
        Value result;
        if(tag <= 0x7f)
            result.number = tag;
        else if(tag <= 0x8f)
            map(result, tag & 0x0f);
        else if(tag <= 0x9f)
            list(result, tag & 0x0f);
        else if(tag <= 0xbf)
            result.text = take(tag & 0x1f);
        else
            sized(result, tag);
        return result;
    }

    private:
    void sized(Value& result, unsigned tag)
    {
        switch(tag)
        {
        case 0xc0: // nil
        case 0xc2: // false
            break;
        case 0xc3: result.number = 1; break;
        case 0xcc: // unsigned, and signed: the sizes of metadata are never negative
        case 0xd0: result.number = integer(1); break;
        case 0xcd:
        case 0xd1: result.number = integer(2); break;
        case 0xce:
        case 0xd2: result.number = integer(4); break;
        case 0xcf:
        case 0xd3: result.number = integer(8); break;
        case 0xd9: result.text = take(integer(1)); break;
        case 0xda: result.text = take(integer(2)); break;
        case 0xdb: result.text = take(integer(4)); break;
        case 0xdc: list(result, integer(2)); break;
        case 0xdd: list(result, integer(4)); break;
        case 0xde: map(result, integer(2)); break;
        case 0xdf: map(result, integer(4)); break;
        default: throw std::runtime_error("MessagePack tag " + std::to_string(tag));
        }
    }

    void list(Value& result, std::uint64_t count)
    {
        for(; count; --count)
            result.list.push_back(value());
    }

    void map(Value& result, std::uint64_t count)
    {
        for(; count; --count)
        {
            std::string key = value().text;
            result.map.insert_or_assign(std::move(key), value());
        }
    }

    std::string take(std::uint64_t count)
    {
        if(count > bytes_.size())
            throw std::runtime_error("MessagePack document that ends early");
        const std::string_view taken = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return std::string(taken);
    }

    std::uint64_t integer(std::uint64_t count)
    {
        std::uint64_t result = 0;
        for(const char byte : take(count))
            result = result << 8 | static_cast<unsigned char>(byte);
        return result;
    }

    std::string_view bytes_;
};

} // namespace

const Value& Value::at(const std::string& key) const
{
    static const Value none;
    const auto found = map.find(key);
    return found == map.end() ? none : found->second;
}

Value parse_msgpack(std::string_view bytes) { return Reader(bytes).value(); }

} // namespace fake_hip
