// What a library knows of its kernels in Triton. The table is written by qola/triton/library.py.
#ifndef QOLA_TRITON_TABLE_H
#define QOLA_TRITON_TABLE_H

#include <cstddef>

namespace qola_triton {

/// A value of a kernel's constant, option or type, as text.
struct Choice
{
    const char* name;
    const char* value;
};

/// What is handed over at a launch.
struct Argument
{
    const char* name;
    char kind;      ///< 'p' a pointer, 'i' signed, 'u' unsigned, 'f' floating point
    unsigned bytes; ///< also what its place is a multiple of
    unsigned divisible;
};

/// A code object.
struct Instance
{
    const char* kernel;
    const char* name;
    const char* arch;
    const char* symbol;
    const char* key; ///< in the arch's pack: digest of the code object
    unsigned threads;
    unsigned shared; ///< bytes of dynamic LDS
    const Choice* choices;
    std::size_t choice_count;
    const Argument* arguments;
    std::size_t argument_count;
};

/// All of them; of those that fit, the first is taken.
struct Table
{
    const char* library; ///< its file's name without .so: those of packs begin with it
    const Instance* instances;
    std::size_t count;
};

extern const Table table;

} // namespace qola_triton

#endif // QOLA_TRITON_TABLE_H
