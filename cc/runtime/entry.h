// An entry is a kernel library in a cache or pack, with a trailer that holds its key and digest.
#ifndef QOLA_RUNTIME_ENTRY_H
#define QOLA_RUNTIME_ENTRY_H

#include "kernel.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace qola_runtime {

/// A kernel for one compiler.
struct CompiledKernel
{
    std::string name;
    std::string arch;
    std::string key;           ///< 64 hex digits
    std::string identity = {}; ///< of the compiler that the key is for
};

/// Computes a kernel's key from its code's digest, the arch and the compiler's identity.
std::string key_of(const Kernel& kernel, std::string_view identity);

/// Returns a kernel for the compiler of an identity.
CompiledKernel compiled_by(const std::string& identity, const Kernel& kernel);

/// Returns the path of an entry below a cache root or pack directory: NAME/ARCH-KEY.so.
std::string entry_path(const CompiledKernel& kernel);

/// Size of a trailer: the magic, the ABI, the key, and the digest of all preceding bytes.
constexpr std::size_t kTrailerBytes = 80;

/// Makes an entry from a kernel library's bytes.
std::string entry_of(std::string_view library, std::string_view key);

/// Returns the defect of an entry, as a predicate after its name; empty for a valid entry. An empty
/// key matches any.
std::string fault_of_entry(std::string_view bytes, std::string_view key);

/// Returns the key in the trailer of a valid entry.
std::string key_in(std::string_view entry);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_ENTRY_H
