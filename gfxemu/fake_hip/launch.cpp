#include "launch.h"

#include "sha256.h"
#include "settings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>

namespace fake_hip {
namespace {

std::atomic<fake_hip_emulator> emulator{nullptr};
std::atomic<fake_hip_variables> variables{nullptr};

std::uint64_t hidden_value(const std::string& kind, const dim3& grid, const dim3& block)
{
    const std::string axis = "xyz";
    const std::uint32_t grids[]{grid.x, grid.y, grid.z};
    const std::uint32_t blocks[]{block.x, block.y, block.z};
    for(int i = 0; i < 3; ++i)
    {
        if(kind == std::string("hidden_block_count_") + axis[i])
            return grids[i];
        if(kind == std::string("hidden_group_size_") + axis[i])
            return blocks[i];
    }
    if(kind == "hidden_grid_dims")
        return grid.z > 1 || block.z > 1 ? 3 : grid.y > 1 || block.y > 1 ? 2 : 1;
    return 0; // offsets and remainders are 0 for whole blocks; an emulator knows the addresses of host services
}

std::string json(const Launch& launch, const std::string& kernarg)
{
    std::ostringstream out;
    const auto dim = [](const dim3& d) {
        return "[" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + "]";
    };
    // Mangled names, arch names and digests have no character that JSON would escape.
    out << "{\"kernel\": \"" << launch.kernel.symbol << "\", \"arch\": \"" << settings().archs[stream_device(launch.stream)].name
        << "\", \"grid\": " << dim(launch.grid) << ", \"block\": " << dim(launch.block)
        << ", \"lds_static\": " << launch.kernel.lds_bytes << ", \"lds_dynamic\": " << launch.dynamic_lds_bytes
        << ", \"stream\": " << stream_number(launch.stream) << ", \"kernarg_bytes\": " << launch.kernel.kernarg_bytes
        << ", \"kernarg_hex\": \"" << qola_runtime::hex_of_bytes(kernarg) << "\", \"source\": \"" << launch.source
        << "\", \"code_object_sha256\": \"" << launch.code_object.sha256 << "\"}\n";
    return out.str();
}

void append(const std::string& path, const std::string& line)
{
    // One write in append mode: lines of several threads and processes never mix.
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if(file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        refuse("FAKE_HIP_LOG: cannot write to " + path + ": " + std::strerror(errno));
    close(file);
}

/// Runs a launch if an emulator is set.
hipError_t emulate(const Launch& launch, const std::string& kernarg)
{
    const fake_hip_emulator run = emulator;
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
    const auto error = static_cast<hipError_t>(run(&seen));
    return error == hipSuccess ? error : record_fault(error);
}

bool valid(const dim3& d) { return d.x && d.y && d.z; }

} // namespace

std::string pack_arguments(const Launch& launch, void** arguments)
{
    std::string kernarg(launch.kernel.kernarg_bytes, '\0');
    std::size_t next = 0;
    for(const Argument& argument : launch.kernel.arguments)
    {
        if(std::size_t{argument.offset} + argument.size > kernarg.size())
            refuse("metadata of " + launch.kernel.symbol + ": an argument outside of the segment");
        char* to = kernarg.data() + argument.offset;
        if(!argument.hidden())
            std::memcpy(to, arguments[next++], argument.size);
        else if(const auto value = hidden_value(argument.kind, launch.grid, launch.block))
            std::memcpy(to, &value, std::min<std::size_t>(argument.size, sizeof value));
    }
    return kernarg;
}

Variable find_variable(const CodeObject& code_object, const std::string& name)
{
    const fake_hip_variables find = variables;
    if(!find)
        refuse("the variable " + name + " has no memory without an emulator");
    Variable found;
    found.address = find(code_object.elf.data(), code_object.elf.size(), name.c_str(), &found.size);
    return found;
}

hipError_t launch(const Launch& launch, const std::string& kernarg)
{
    const Kernel& kernel = launch.kernel;
    const auto threads   = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
    if(!valid(launch.grid) || !valid(launch.block) || threads > kernel.max_block)
        return record(hipErrorInvalidConfiguration);
    if(stream_number(launch.stream) < 0)
        return record(hipErrorInvalidHandle);
    if(kernel.lds_bytes + launch.dynamic_lds_bytes > settings().archs[stream_device(launch.stream)].lds_bytes)
        return record(hipErrorInvalidValue);
    if(!settings().log.empty())
        append(settings().log, json(launch, kernarg));
    return emulate(launch, kernarg);
}

} // namespace fake_hip

void fake_hip_emulate(fake_hip_emulator emulator) { fake_hip::emulator = emulator; }

void fake_hip_find_variables(fake_hip_variables find) { fake_hip::variables = find; }
