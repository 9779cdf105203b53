// Finds AITER's assembly (v3) kernels in the library by key, and loads them from
// memory. Private to the library. AITER's patched v3 sources include it after
// AITER's headers, so that a failing HIP_CALL throws.
#ifndef QOLA_ASM_H
#define QOLA_ASM_H

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstring> // the v3 sources call strlen
#include <stdexcept>
#include <string>
#include <string_view>

namespace qola_asm {

/// One embedded .co file. `key` has the form of AITER_EMBEDDED_HSA_MAP in later
/// AITERs: hsa/<arch>/<subdir>/[MI300/|MI308/]<kernel>.co. `data` is aligned to
/// 4096 bytes.
struct CodeObject
{
    const char* key;
    const unsigned char* data;
    std::size_t size;
};

/// All embedded code objects, sorted by key (by bytes).
struct Table
{
    const CodeObject* first;
    std::size_t count;

    const CodeObject* begin() const noexcept { return first; }
    const CodeObject* end() const noexcept { return first + count; }
};

/// A failed HIP call; the message has the call and HIP's description.
class Error : public std::runtime_error
{
    public:
    using std::runtime_error::runtime_error;
};

/// A requested code object is not in the library.
class NotEmbedded : public Error
{
    public:
    explicit NotEmbedded(const std::string& key);
};

/// Returns every embedded code object.
Table table() noexcept;

/// Returns the code object with this key, null if it is not embedded.
const CodeObject* find(std::string_view key) noexcept;

/// Throws Error when `status` is an error; `call` is the call's source text.
void check(hipError_t status, const char* call);

/// Loads an embedded code object on the current device.
/// Throws NotEmbedded if none has this key, Error if HIP fails.
void load(hipModule_t* module, const std::string& key);

/// Returns the number of compute units of the current device; throws Error.
/// Not cached, unlike in AITER, which uses the first device's number for all.
unsigned cu_count();

} // namespace qola_asm

#endif // QOLA_ASM_H

// Outside of the guard: AITER's header may come between two inclusions.
#ifdef HIP_CALL
// AITER's own macro ends the process.
#undef HIP_CALL
#define HIP_CALL(call) ::qola_asm::check((call), #call)
#endif
