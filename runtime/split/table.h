// The table of a split library's device code, written by qola/split.
#pragma once

#include <cstddef>

namespace qola_split {

/// The device code of a place in the library for one arch.
struct DeviceCode
{
    const void* place; ///< address in the library that has the code in the unsplit library, and nothing here
    const char* key;   ///< key in the arch's pack: digest of the code
};

/// The device code of an arch, sorted by place.
struct ArchCode
{
    const char* arch;
    const DeviceCode* codes;
    std::size_t count;
};

struct Table
{
    const char* library; ///< its file name without .so, with which the names of packs begin
    const ArchCode* archs;
    std::size_t count;
};

extern const Table table;

} // namespace qola_split

// From split.ld: where the unsplit library has the bundles of kernels, and AITER's embedded code objects.
extern "C" {
__attribute__((visibility("hidden"))) extern const char qola_split_bundles[];
__attribute__((visibility("hidden"))) extern const char qola_split_code_objects[];
}
