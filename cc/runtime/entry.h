// An entry: a kernel library as it lies in a cache or a pack, with a trailer that names and guards
// it.
#ifndef QOLA_RUNTIME_ENTRY_H
#define QOLA_RUNTIME_ENTRY_H

#include "kernel.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace qola_runtime {

/// A kernel as one compiler compiles it.
struct CompiledKernel
{
    std::string name;
    std::string arch;
    std::string key;           ///< 64 hex digits
    std::string identity = {}; ///< of the compiler that the key is for
};

/// Key of a kernel: of its code's digest, the arch, and the compiler's identity.
std::string key_of(const Kernel& kernel, std::string_view identity);

/// A kernel as the compiler of that identity compiles it.
CompiledKernel compiled_by(const std::string& identity, const Kernel& kernel);

/// Path of an entry below a cache root or a pack that is a directory: NAME/ARCH-KEY.so.
std::string entry_path(const CompiledKernel& kernel);

/// Bytes of a trailer: the magic, the ABI, the key, and the digest of all before that.
constexpr std::size_t kTrailerBytes = 80;

/// An entry: a kernel library's bytes and their trailer.
std::string entry_of(std::string_view library, std::string_view key);

/// What is wrong with an entry, as the end of a sentence that begins with its name; empty where it
/// is whole. With an empty key any is right.
std::string fault_of_entry(std::string_view bytes, std::string_view key);

/// The key in the trailer of a whole entry.
std::string key_in(std::string_view entry);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_ENTRY_H
