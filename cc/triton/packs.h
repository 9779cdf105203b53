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
    /// The code object of a kernel. Throws Problem where the arch's pack is not there, is damaged, or has
    /// not this one.
    std::string code_of(const Instance& instance);

    private:
    const qola_runtime::Pack& of(const std::string& arch);

    std::map<std::string, std::unique_ptr<qola_runtime::Pack>> packs_;
};

} // namespace qola_triton

#endif // QOLA_TRITON_PACKS_H
