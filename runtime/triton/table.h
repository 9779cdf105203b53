// The table of a library's kernels in Triton, written by qola/triton/library.py.
#pragma once

#include <cstddef>

namespace qola_triton {

/// A value of a kernel's constant, option or type, as text.
struct Choice
{
    const char* name;
    const char* value;
};

/// An argument of a launch.
struct Argument
{
    const char* name;
    char kind;      ///< 'p' a pointer, 'i' signed, 'u' unsigned, 'f' floating point
    unsigned bytes; ///< size and alignment
    unsigned divisible;
};

/// A code object.
struct Instance
{
    const char* kernel;
    const char* name;
    const char* arch;
    const char* symbol;
    const char* key; ///< key in the arch's pack: digest of the code object
    unsigned threads;
    unsigned shared; ///< bytes of dynamic LDS
    const Choice* choices;
    std::size_t choice_count;
    const Argument* arguments;
    std::size_t argument_count;
};

/// All kernels; the first match is used.
struct Table
{
    const char* library; ///< its file name without .so, with which the names of packs begin
    const Instance* instances;
    std::size_t count;
};

extern const Table table;

} // namespace qola_triton
