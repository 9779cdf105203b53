// Calls C functions of qola_c.h from XLA: buffers of an FFI call become tensors of a problem. Header-only.
//
// The caller describes the problem as a qola_mha_args without addresses, in words of 64 bits, and names for
// each argument and each result the byte offset of the pointer that gets its address. Whoever fills the
// structure, such as runtime/wheel/jax.py, thus decides alone on the mapping of shapes to fields.
#pragma once

#include "xla/ffi/api/ffi.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace qola_jax {

namespace ffi = ::xla::ffi;

/// qola_status: the values that an error code depends on.
enum Status
{
    OK          = 0,
    NO_KERNEL   = -1,
    UNAVAILABLE = -4,
    UNSUPPORTED = -5,
    INVALID     = -6
};

/// An entry point, whose library is loaded by the first call.
class Entry
{
public:
    /// Sets the library of the entry point, before the first call.
    void set(const char* library, const char* name)
    {
        const std::scoped_lock lock(mutex_);
        library_ = library;
        name_    = name;
    }

    /// Launches a problem on a stream.
    int launch(const void* problem, void* stream)
    {
        return launch_(problem, stream);
    }

    /// Returns the message of this thread's last failed call.
    std::string message() const
    {
        return name_ + ": " + last_error_();
    }

    /// Loads the library; returns an error message, "" on success.
    std::string load()
    {
        const std::scoped_lock lock(mutex_);
        if(launch_ != nullptr)
            return "";
        if(library_.empty())
            return "this package has no library with the entry point; add its module to the manifest";
        void* const library = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
        if(library == nullptr)
            return std::string(dlerror()) + "; it needs ROCm's libamdhip64";
        void* const launch     = dlsym(library, name_.c_str());
        void* const last_error = dlsym(library, (name_ + "_last_error").c_str());
        if(launch == nullptr || last_error == nullptr)
            return library_ + ": no function " + name_;
        last_error_ = reinterpret_cast<const char* (*)()>(last_error);
        launch_     = reinterpret_cast<int (*)(const void*, void*)>(launch);
        return "";
    }

private:
    std::mutex mutex_;
    std::string library_;
    std::string name_;
    int (*launch_)(const void*, void*) = nullptr;
    const char* (*last_error_)()       = nullptr;
};

/// A buffer of an FFI call.
struct Buffer
{
    void* data;
    std::size_t bytes;
};

/// Returns the arguments of an FFI call, then its results.
inline ffi::ErrorOr<std::vector<Buffer>> buffers_of(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets)
{
    std::vector<Buffer> buffers;
    for(std::size_t at = 0; at < args.size(); ++at)
    {
        const auto buffer = args.get<ffi::AnyBuffer>(at);
        if(buffer.has_error())
            return ffi::Unexpected(buffer.error());
        buffers.push_back({buffer->untyped_data(), buffer->size_bytes()});
    }
    for(std::size_t at = 0; at < rets.size(); ++at)
    {
        auto buffer = rets.get<ffi::AnyBuffer>(at);
        if(buffer.has_error())
            return ffi::Unexpected(buffer.error());
        buffers.push_back({(*buffer)->untyped_data(), (*buffer)->size_bytes()});
    }
    return buffers;
}

/// Writes the addresses of buffers into a problem; returns an error message, "" on success.
inline std::string set_addresses(std::vector<std::int64_t>& problem,
                                 ffi::Span<const std::int64_t> places,
                                 const std::vector<Buffer>& buffers)
{
    if(places.size() != buffers.size())
        return "places: " + std::to_string(places.size()) + ", expected one for each of " +
               std::to_string(buffers.size()) + " buffers";
    for(std::size_t at = 0; at < buffers.size(); ++at)
    {
        const std::int64_t offset = places.begin()[at];
        // Offset 0 is struct_size.
        if(offset <= 0 || offset % 8 != 0 || static_cast<std::size_t>(offset) / 8 >= problem.size())
            return "places: " + std::to_string(offset) + ", expected a multiple of 8 inside of the problem";
        problem[static_cast<std::size_t>(offset) / 8] = reinterpret_cast<std::intptr_t>(buffers[at].data);
    }
    return "";
}

/// Launches the problem of an FFI call on a hipStream_t.
inline ffi::Error launch(Entry& entry,
                         void* stream,
                         ffi::Span<const std::int64_t> problem,
                         ffi::Span<const std::int64_t> places,
                         const std::vector<Buffer>& buffers)
{
    std::vector<std::int64_t> filled(problem.begin(), problem.end());
    if(const std::string wrong = set_addresses(filled, places, buffers); !wrong.empty())
        return ffi::Error(ffi::ErrorCode::kInvalidArgument, wrong);
    if(const std::string wrong = entry.load(); !wrong.empty())
        return ffi::Error(ffi::ErrorCode::kUnavailable, wrong);
    switch(entry.launch(filled.data(), stream))
    {
    case OK: return ffi::Error::Success();
    case NO_KERNEL:
    case UNSUPPORTED: return ffi::Error(ffi::ErrorCode::kUnimplemented, entry.message());
    case UNAVAILABLE: return ffi::Error(ffi::ErrorCode::kUnavailable, entry.message());
    case INVALID: return ffi::Error(ffi::ErrorCode::kInvalidArgument, entry.message());
    default: return ffi::Error(ffi::ErrorCode::kInternal, entry.message());
    }
}

} // namespace qola_jax
