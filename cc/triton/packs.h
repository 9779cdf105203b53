// Finds the code of the table's kernels in packs, one per arch.
#ifndef QOLA_TRITON_PACKS_H
#define QOLA_TRITON_PACKS_H

#include "table.h"

#include "cc/runtime/pack.h"

#include <map>
#include <memory>
#include <string>

namespace qola_triton {

/// Opens packs at their first use. Not thread-safe.
class Packs
{
    public:
    /// Returns the code object of a kernel from the first pack that has it. Throws Problem if none has it, or an
    /// earlier pack is damaged.
    std::string code_of(const Instance& instance);

    private:
    /// Returns the pack at a path, null if there is none.
    const qola_runtime::Pack* at(const std::string& path, const qola_runtime::Trust& trust);

    std::map<std::string, std::unique_ptr<qola_runtime::Pack>> packs_;
};

} // namespace qola_triton

#endif // QOLA_TRITON_PACKS_H
