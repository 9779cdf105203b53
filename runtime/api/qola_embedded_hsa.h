// The header that AITER's aiter_hip_common.h includes as AITER_EMBEDDED_HSA_HEADER: a map over the
// library's embedded code objects. Private to the library, and only for AITER's own sources.
//
// It also protects the caller's process. AITER's sources would load code objects from the directory in
// AITER_ASM_DIR, and end the process if HIP reports an error. Both are calls of C functions, which macros
// replace from here on: the variable is never read, and an exit becomes an exception that the entry points
// convert to a status.
#ifndef QOLA_EMBEDDED_HSA_H
#define QOLA_EMBEDDED_HSA_H

#include "qola_asm.h"

// Headers that declare the functions below must precede the macros of their names.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace qola_asm {

/// The embedded code objects as a map from key to data, with the interface that AITER's sources expect of
/// AITER_EMBEDDED_HSA_MAP.
class EmbeddedMap
{
    public:
    struct value_type
    {
        std::string_view first;
        std::string_view second;
    };

    class const_iterator
    {
        public:
        explicit const_iterator(const CodeObject* at) noexcept : at_(at)
        {
            if(at != table().end())
                value_ = {at->key, {reinterpret_cast<const char*>(at->data), at->size}};
        }
        const value_type& operator*() const noexcept { return value_; }
        const value_type* operator->() const noexcept { return &value_; }
        const_iterator& operator++() noexcept { return *this = const_iterator(at_ + 1); }
        bool operator==(const const_iterator& other) const noexcept { return at_ == other.at_; }

        private:
        const CodeObject* at_;
        value_type value_{};
    };

    const_iterator begin() const noexcept { return const_iterator(table().begin()); }
    const_iterator end() const noexcept { return const_iterator(table().end()); }
    std::size_t size() const noexcept { return table().count; }
    const_iterator find(std::string_view key) const noexcept
    {
        const CodeObject* found = qola_asm::find(key);
        return found == nullptr ? end() : const_iterator(found);
    }
};

inline constexpr EmbeddedMap embedded{};

/// Replaces the name of a variable: "" is never set.
inline const char* asked_variable(const char* name) noexcept
{
    return std::strcmp(name, "AITER_ASM_DIR") == 0 ? "" : name;
}

/// Thrown instead of ending the process. AITER's sources have printed the reason to standard error.
inline std::exception_ptr ended()
{
    return std::make_exception_ptr(Error("AITER gave up; standard error has its reason"));
}

} // namespace qola_asm

// Targets of the macros below for calls without std::.
using std::rethrow_exception;

#define AITER_EMBEDDED_HSA_MAP ::qola_asm::embedded

// With or without std::, each macro expands to a name that exists in both scopes.
#define getenv(name) getenv(::qola_asm::asked_variable(name))
#define abort() rethrow_exception(::qola_asm::ended())
#define terminate() rethrow_exception(::qola_asm::ended())
#define exit(status) rethrow_exception(::qola_asm::ended())
// Called in destructors, which must not throw; HIP may be unloaded before its modules at the process's end.
#define hipModuleUnload(module) (static_cast<void>(hipModuleUnload(module)), hipSuccess)

#endif // QOLA_EMBEDDED_HSA_H
