// What AITER's aiter_hip_common.h includes by the name AITER_EMBEDDED_HSA_HEADER: a map over the
// library's embedded code objects. Private to the library, and only for AITER's own sources.
//
// It also keeps to the caller's process what is the caller's. These sources would load a code object
// from the directory AITER_ASM_DIR names, whatever is embedded, and end the process where HIP
// reports an error. Both are calls of functions of C, and macros stand for these from here on: the
// variable is never seen, and an end is an exception, which the entry points turn into a status.
#ifndef QOLA_EMBEDDED_HSA_H
#define QOLA_EMBEDDED_HSA_H

#include "qola_asm.h"

// Whatever declares the functions below has to come before the macros of their names.
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

/// The embedded code objects as a map from key to data: what AITER's sources ask of the map that
/// AITER_EMBEDDED_HSA_MAP names.
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

/// The name under which a variable is looked up: none is ever set that is called "".
inline const char* asked_variable(const char* name) noexcept
{
    return std::strcmp(name, "AITER_ASM_DIR") == 0 ? "" : name;
}

/// What is thrown where AITER's sources would end the process. They have said why on standard error.
inline std::exception_ptr ended()
{
    return std::make_exception_ptr(Error("AITER gave up; standard error has its reason"));
}

} // namespace qola_asm

// What the macros below turn into, for those who write abort() without std:: in front.
using std::rethrow_exception;

#define AITER_EMBEDDED_HSA_MAP ::qola_asm::embedded

// Behind std:: or not, as they are written: each turns into a name that is in both places.
#define getenv(name) getenv(::qola_asm::asked_variable(name))
#define abort() rethrow_exception(::qola_asm::ended())
#define terminate() rethrow_exception(::qola_asm::ended())
#define exit(status) rethrow_exception(::qola_asm::ended())
// In a destructor, which may not throw; at the end of a process HIP may be gone before its modules.
#define hipModuleUnload(module) (static_cast<void>(hipModuleUnload(module)), hipSuccess)

#endif // QOLA_EMBEDDED_HSA_H
