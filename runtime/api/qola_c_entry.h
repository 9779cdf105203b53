// Implements the C functions of a library (qola_c.h) with its C++ ones; not installed.
#pragma once

#include "qola_c_fill.h"
#include "qola_call.h"
#include "qola_entry.h"

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace qola_c_entry {

/// Size of the structure in the first header, the smallest valid one.
inline constexpr std::size_t FIRST_FOUND = 208;
static_assert(sizeof(qola_found) >= FIRST_FOUND);

/// Calls the C++ entry point.
template <class Entry>
int call(Fields& fields, Workspace& workspace)
{
    typename Entry::Args args{};
    Parameters more;
    fill<Entry>(args, more, fields, workspace);
    const float answer = Entry::call(args, ck_tile::stream_config{workspace.stream()}, more);
    workspace.check();
    return status_of(answer);
}

template <class Entry>
int launch(const qola_mha_args* args, void* stream)
{
    return answered([&] {
        Fields fields(args);
        Workspace workspace(fields.values.workspace, fields.values.workspace_size, static_cast<hipStream_t>(stream));
        return call<Entry>(fields, workspace);
    });
}

/// The kernels and the workspace of a call.
struct Asked
{
    int status = QOLA_OK;
    std::vector<qola_entry::Noted> kernels;
    std::uint64_t workspace = 0;
};

template <class Entry>
Asked ask(const qola_mha_args* args)
{
    Asked asked;
    Fields fields(args);
    Workspace workspace;
    const qola_entry::Recorded recorded(asked.kernels);
    asked.status    = call<Entry>(fields, workspace);
    asked.workspace = workspace.needed();
    return asked;
}

inline qola_stage stage_of(const qola_entry::Noted& noted)
{
    if(noted.kernel != nullptr)
        return {noted.kernel, nullptr, 0, 0};
    if(noted.function != nullptr)
        return {nullptr, hipKernelNameRef(static_cast<hipFunction_t>(noted.function)), 1, 0};
    return {nullptr, hipKernelNameRefByPtr(noted.symbol, nullptr), 0, 0};
}

template <class Entry>
int find(const qola_mha_args* args, qola_found* found)
{
    return answered([&] {
        if(found == nullptr || found->struct_size < FIRST_FOUND || found->struct_size >= BEYOND_ARGS)
            invalid("found: null, or struct_size is not sizeof(qola_found)");
        const Asked asked = ask<Entry>(args);
        if(asked.status != QOLA_OK)
            return asked.status;
        qola_found own{};
        own.struct_size    = found->struct_size;
        own.stage_count    = static_cast<std::uint32_t>(asked.kernels.size());
        own.workspace_size = asked.workspace;
        for(std::size_t at = 0; at < std::min<std::size_t>(asked.kernels.size(), QOLA_MAX_STAGES); ++at)
            own.stages[at] = stage_of(asked.kernels[at]);
        const std::size_t size = found->struct_size;
        std::memset(static_cast<void*>(found), 0, size);
        std::memcpy(found, &own, std::min(size, sizeof own));
        return static_cast<int>(QOLA_OK);
    });
}

template <class Entry>
int workspace_size(const qola_mha_args* args, std::uint64_t* size)
{
    return answered([&] {
        if(size == nullptr)
            invalid("size: null");
        typename Entry::Args filled{};
        if constexpr(requires { filled.workspace_alloc; })
        {
            const Asked asked = ask<Entry>(args);
            *size             = asked.workspace;
            return asked.status;
        }
        else
        {
            Fields fields(args);
            Workspace workspace;
            Parameters more;
            fill<Entry>(filled, more, fields, workspace);
            *size = workspace.needed();
            return static_cast<int>(QOLA_OK);
        }
    });
}

template <class Entry>
int prepare(const qola_mha_args* args)
{
    return answered([&] {
        const Asked asked = ask<Entry>(args);
        const auto rows   = qola_entry::rows_of(asked.kernels);
        if(asked.status == QOLA_OK && !rows.empty())
            for(const qola_entry::Noted& noted : asked.kernels)
                if(noted.load != nullptr)
                {
                    noted.load(rows);
                    break;
                }
        return asked.status;
    });
}

/// The kernels of an entry point in this library, which may be built for some of its archs.
template <class Entry>
const std::vector<const char*>& kernels()
{
    static const auto& names = *[] {
        auto* found = new std::vector<const char*>;
        for(const Kernel& kernel : Entry::kernels())
            if(qola_entry::any_of(kernel.archs, qola_entry::has_code_for))
                found->push_back(kernel.name);
        return found;
    }();
    return names;
}

template <class Entry>
const char* kernel_name(std::size_t number)
{
    const auto& names = kernels<Entry>();
    return number < names.size() ? names[number] : nullptr;
}

} // namespace qola_c_entry

/// Defines the functions that QOLA_C_ENTRY declares.
#define QOLA_C_DEFINE(entry, Entry)                                                                                  \
    extern "C" {                                                                                                     \
    int QOLA_C(entry)(const qola_mha_args* args, void* stream) { return qola_c_entry::launch<Entry>(args, stream); } \
    int QOLA_C(entry##_find)(const qola_mha_args* args, qola_found* found)                                           \
    {                                                                                                                \
        return qola_c_entry::find<Entry>(args, found);                                                               \
    }                                                                                                                \
    int QOLA_C(entry##_workspace_size)(const qola_mha_args* args, uint64_t* size)                                    \
    {                                                                                                                \
        return qola_c_entry::workspace_size<Entry>(args, size);                                                      \
    }                                                                                                                \
    int QOLA_C(entry##_prepare)(const qola_mha_args* args) { return qola_c_entry::prepare<Entry>(args); }            \
    size_t QOLA_C(entry##_kernel_count)(void) { return qola_c_entry::kernels<Entry>().size(); }                      \
    const char* QOLA_C(entry##_kernel_name)(size_t number) { return qola_c_entry::kernel_name<Entry>(number); }      \
    const char* QOLA_C(entry##_status_string)(int status) { return qola_c_entry::status_string(status); }            \
    const char* QOLA_C(entry##_last_error)(void) { return qola_c_entry::last_error; }                                \
    }
