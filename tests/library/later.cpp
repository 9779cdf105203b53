// What AITER's later sources do with the map and with the process, in words of our own.
#ifndef AITER_EMBEDDED_HSA_HEADER
#error "as AITER: the build names the header"
#endif
#include AITER_EMBEDDED_HSA_HEADER

#include <string>

#define PROBE extern "C" __attribute__((visibility("default")))

PROBE const char* later_find(const char* key, std::size_t* size)
{
    const std::string name = key;
    auto object            = AITER_EMBEDDED_HSA_MAP.find(name);
    *size                  = 0;
    if(object == AITER_EMBEDDED_HSA_MAP.end())
        return nullptr;
    if(object != AITER_EMBEDDED_HSA_MAP.end() && (*object).first == name)
        *size = object->second.size();
    return object->second.data();
}

PROBE std::size_t later_count()
{
    std::size_t count = 0;
    for(const auto& [key, data] : AITER_EMBEDDED_HSA_MAP)
        count += !key.empty() && !data.empty();
    return count == AITER_EMBEDDED_HSA_MAP.size() ? count : 0;
}

// Bit 0: AITER_ASM_DIR is seen, bit 1: another variable is.
PROBE int later_variables()
{
    const char* AITER_ASM_DIR = std::getenv("AITER_ASM_DIR");
    const char* other         = getenv("QOLA_TEST_OTHER");
    return (AITER_ASM_DIR != nullptr ? 1 : 0) | (other != nullptr ? 2 : 0);
}

// Ends the process in each of AITER's ways; 1 where that is an exception instead.
PROBE int later_end(int way)
{
    try
    {
        if(way == 0)
            exit(0);
        if(way == 1)
            std::abort();
        if(way == 2)
            std::terminate();
        if(way == 3)
            std::exit(1);
        if(way == 4)
            abort();
    }
    catch(const qola_asm::Error&)
    {
        return 1;
    }
    return 0;
}

// Without a device HIP refuses, which a destructor must not end the process for.
PROBE int later_unload() { return hipModuleUnload(nullptr) == hipSuccess ? 1 : 0; }
