// Reads what hipcc embeds: clang's offload bundles, and the code objects in them.
#pragma once

#include "settings.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fake_hip {

/// One kernel argument, explicit or hidden, in bytes of the kernarg segment.
struct Argument
{
    std::string kind; ///< value kind, such as "by_value" or "hidden_block_count_x"
    std::uint32_t offset = 0;
    std::uint32_t size   = 0;

    /// Whether the runtime, not the caller, gives the value.
    bool hidden() const { return kind.starts_with("hidden_"); }
};

/// One kernel of a code object, as its metadata note describes it. Sizes in bytes.
struct Kernel
{
    std::string symbol; ///< mangled name
    std::uint32_t kernarg_bytes = 0;
    std::uint32_t lds_bytes     = 0; ///< static LDS
    std::uint32_t scratch_bytes = 0; ///< private memory of a work-item
    std::uint32_t max_block     = 0; ///< most work-items of a block
    std::uint32_t vgprs         = 0; ///< vector registers of a lane, with accumulation registers
    std::uint32_t sgprs         = 0; ///< scalar registers of a wave
    std::vector<Argument> arguments;
};

/// A code object of one arch.
struct CodeObject
{
    std::string elf;    ///< the file
    std::string sha256; ///< its digest
    std::map<std::string, Kernel> kernels;
};

/// The code object for an arch in an image: an offload bundle, compressed or not, or a plain ELF
/// file. Nothing where the image has none for it. Aborts on an image it cannot read.
std::optional<CodeObject> load_image(const void* image, const Arch& arch);

} // namespace fake_hip
