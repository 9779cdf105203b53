#include "emulator.h"

#include "errors.h"

#include <atomic>

namespace {
std::atomic<fake_hip_emulator> current{nullptr};
} // namespace

void fake_hip_emulate(fake_hip_emulator emulator) { current = emulator; }

hipError_t fake_hip::emulate(const Launch& launch, const std::string& kernarg)
{
    const fake_hip_emulator run = current;
    if(!run)
        return hipSuccess;
    const fake_hip_launch seen{launch.kernel.symbol.c_str(),
                               launch.code_object.elf.data(),
                               launch.code_object.elf.size(),
                               {launch.grid.x, launch.grid.y, launch.grid.z},
                               {launch.block.x, launch.block.y, launch.block.z},
                               static_cast<std::uint32_t>(launch.dynamic_lds_bytes),
                               kernarg.data(),
                               kernarg.size()};
    return record(static_cast<hipError_t>(run(&seen)));
}
