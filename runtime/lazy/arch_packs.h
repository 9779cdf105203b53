// Packs of one library's device code: a file `<library>-<arch>.qpack` for each arch. The key of an entry is the digest
// of its code, and the library contains the keys, so that it never runs code of another build.
#pragma once

#include "ownership.h"
#include "pack.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qola_runtime {

/// Searches packs, and keeps them open. Not thread-safe.
class ArchPacks
{
    public:
    /// `library` is the library's file name without .so.
    explicit ArchPacks(std::string library);

    /// Result of a search.
    struct Found
    {
        const Pack* pack;                  ///< null if no pack has all keys
        std::string other;                 ///< path of the last pack that lacks a key, which is of another build
        std::vector<std::string> searched; ///< paths, in search order
    };

    /// Returns the first pack of an arch with all `keys`: named by QOLA_PACKS or in a directory that it names, then
    /// next to the library, then next to the target of its link. Throws Problem if an earlier one is damaged.
    Found find(const std::string& arch, const std::vector<std::string>& keys);

    /// Returns the file name of an arch's pack.
    std::string name_of(const std::string& arch) const { return library_ + "-" + arch + ".qpack"; }

    /// Returns the path of the library.
    const std::string& file() const { return file_; }

    private:
    std::vector<std::pair<std::string, Trust>> places_of(const std::string& name) const;
    const Pack* at(const std::string& path, const Trust& trust);

    const std::string library_;
    const std::string file_;
    std::map<std::string, std::unique_ptr<Pack>> packs_;
};

} // namespace qola_runtime
