// Embedded code objects: the table that the Bazel rule embedded_code_objects
// assembles, and its lookup for AITER's v3 sources.
#include "qola_asm.h"

#include <algorithm>

extern "C" {
// Defined in the assembly; hidden, so that each library has its own.
__attribute__((visibility("hidden"))) extern const qola_asm::CodeObject qola_asm_table[];
__attribute__((visibility("hidden"))) extern const std::size_t qola_asm_table_size;
}

namespace qola_asm {
namespace {

// The source text of a launch has ten lines, so messages only use its name.
std::string name_of(const char* call) { return std::string(call, std::strcspn(call, "(")); }

} // namespace

NotEmbedded::NotEmbedded(const std::string& key) : Error(key + ": no such code object in this library") {}

Table table() noexcept { return {qola_asm_table, qola_asm_table_size}; }

const CodeObject* find(std::string_view key) noexcept
{
    const Table all = table();
    const auto found =
        std::lower_bound(all.begin(), all.end(), key, [](const CodeObject& object, std::string_view wanted) {
            return object.key < wanted;
        });
    return found != all.end() && found->key == key ? found : nullptr;
}

void check(hipError_t status, const char* call)
{
    if(status != hipSuccess)
        throw Error(name_of(call) + ": " + hipGetErrorString(status));
}

void load(hipModule_t* module, const std::string& key)
{
    const CodeObject* object = find(key);
    if(object == nullptr)
        throw NotEmbedded(key);
    const hipError_t status = hipModuleLoadData(module, object->data);
    if(status != hipSuccess)
        throw Error("hipModuleLoadData of " + key + ": " + hipGetErrorString(status));
}

unsigned cu_count()
{
    int device = 0;
    int count  = 0;
    check(hipGetDevice(&device), "hipGetDevice");
    check(hipDeviceGetAttribute(&count, hipDeviceAttributeMultiprocessorCount, device), "hipDeviceGetAttribute");
    return static_cast<unsigned>(count);
}

} // namespace qola_asm
