// Where the code of the table's kernels is: a pack for each arch.
#ifndef QOLA_TRITON_PACKS_H
#define QOLA_TRITON_PACKS_H

#include "table.h"

#include "cc/runtime/pack.h"

#include <map>
#include <memory>
#include <string>

namespace qola_triton {

/// Packs, each opened when it is first asked for. One thread at a time.
class Packs
{
    public:
    /// The code object of a kernel, from the first pack that has it. Throws Problem where none has, or one
    /// before it is damaged.
    std::string code_of(const Instance& instance);

    private:
    /// The pack in a place, null where there is none.
    const qola_runtime::Pack* at(const std::string& path, const qola_runtime::Trust& trust);

    std::map<std::string, std::unique_ptr<qola_runtime::Pack>> packs_;
};

} // namespace qola_triton

#endif // QOLA_TRITON_PACKS_H
