// What the test calls by ctypes.
#include "qola_asm.h"

#include <cstdlib>

// As in AITER's aiter_hip_common.h; what includes qola_asm.h after it throws.
#define HIP_CALL(call)          \
    do                          \
    {                           \
        if((call) != hipSuccess) \
            std::exit(0);       \
    } while(0)
#include "qola_asm.h"

// What qola/codegen/asm/domain.py writes: golden files of its own tests.
#include "tests/golden/asm/domain_bwd.h"
#include "tests/golden/asm/domain_fwd.h"

#define PROBE extern "C" __attribute__((visibility("default")))

PROBE std::size_t probe_count() { return qola_asm::table().count; }

PROBE const char* probe_key(std::size_t index) { return qola_asm::table().first[index].key; }

PROBE const unsigned char* probe_find(const char* key, std::size_t* size)
{
    const qola_asm::CodeObject* object = qola_asm::find(key);
    *size                              = object ? object->size : 0;
    return object ? object->data : nullptr;
}

// What load() and cu_count() throw without a device: 0 nothing, 1 NotEmbedded, 2 Error.
PROBE int probe_load(const char* key, char* message, std::size_t length)
{
    hipModule_t module;
    try
    {
        qola_asm::load(&module, key);
        return 0;
    }
    catch(const qola_asm::NotEmbedded& error)
    {
        std::strncpy(message, error.what(), length - 1);
        return 1;
    }
    catch(const qola_asm::Error& error)
    {
        std::strncpy(message, error.what(), length - 1);
        return 2;
    }
}

PROBE int probe_cu_count(char* message, std::size_t length)
{
    try
    {
        return static_cast<int>(qola_asm::cu_count());
    }
    catch(const qola_asm::Error& error)
    {
        std::strncpy(message, error.what(), length - 1);
        return -1;
    }
}

PROBE int probe_hip_call(char* message, std::size_t length)
{
    try
    {
        HIP_CALL(hipModuleUnload(nullptr));
        return 0;
    }
    catch(const qola_asm::Error& error)
    {
        std::strncpy(message, error.what(), length - 1);
        return 2;
    }
}

// Bits of `flags`: group, mask, bias, then the direction's own.
PROBE int probe_serves_fwd(const char* dtype, int q, int v, int flags)
{
    const auto bit = [flags](int index) { return (flags >> index & 1) != 0; };
    return qola_asm_serves(dtype, q, v, bit(0), bit(1), bit(2), bit(3), bit(4));
}

PROBE int probe_serves_bwd(const char* dtype, int q, int v, int flags)
{
    const auto bit = [flags](int index) { return (flags >> index & 1) != 0; };
    return qola_asm_serves(dtype, q, v, bit(0), bit(1), bit(2), bit(3), bit(4), bit(5));
}
