// A thread's call of an entry point: its status, the message of an error, and its state, with which a library finds the
// kernels of a call before, or without, running any of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// qola_common.h documents them for users.
#define QOLA_STATUS_NO_KERNEL (-1.f)
#define QOLA_STATUS_NO_ARCH (-2.f)
#define QOLA_STATUS_FAILED (-3.f)
#define QOLA_STATUS_UNAVAILABLE (-4.f)

namespace qola_entry {

/// Ends an entry point with a status whose reason has been printed.
class StatusError : public std::runtime_error
{
    public:
    StatusError(float status, const std::string& what) : std::runtime_error(what), status(status) {}
    const float status;
};

/// Copies a text into a buffer. Of a text that is too long, copies its start and its end: messages end in the fix.
template <std::size_t size>
void copy_text(char (&to)[size], const char* text)
{
    constexpr std::size_t end = size / 2;
    const std::size_t length  = std::strlen(text);
    if(length < size)
        std::memcpy(to, text, length + 1);
    else
        std::snprintf(to, size, "%.*s...%s", static_cast<int>(size - end - 4), text, text + length - end);
}

/// Message of the thread's last entry point that ended with an error, for the C functions. Not a std::string, so that a
/// thread has nothing to destroy.
inline thread_local char reason[1024] = "";

/// A kernel that a call would have launched.
struct Noted
{
    using Load = void(const std::vector<unsigned>& rows);

    /// Lazy library: the kernel instance, its row in the library's table, and a function that loads rows or
    /// throws.
    static Noted of_row(const char* kernel, unsigned row, Load* load) { return {kernel, row, load, nullptr, nullptr}; }
    /// The host function passed to hipLaunchKernel.
    static Noted of_program(const void* symbol) { return {nullptr, 0, nullptr, symbol, nullptr}; }
    /// The function passed to hipModuleLaunchKernel.
    static Noted of_module(void* function) { return {nullptr, 0, nullptr, nullptr, function}; }

    const char* kernel;
    unsigned row;
    Load* load;
    const void* symbol;
    void* function;
};

/// Returns the recorded rows of a lazy library, each once.
inline std::vector<unsigned> rows_of(const std::vector<Noted>& noted)
{
    std::vector<unsigned> rows;
    for(const Noted& one : noted)
        if(one.kernel != nullptr && std::find(rows.begin(), rows.end(), one.row) == rows.end())
            rows.push_back(one.row);
    return rows;
}

/// The call of a thread.
struct ThreadCall
{
    void (*again)(void* call) = nullptr; ///< repeats the call; null if it must not be repeated
    void* call                = nullptr; ///< argument of `again`
    /// List of recorded kernels while a call must launch nothing, else null.
    std::vector<Noted>* noted = nullptr;
};
inline thread_local ThreadCall thread_call;

/// Sets `thread_call`, and restores it on destruction.
class Call
{
    public:
    explicit Call(const ThreadCall& call) : before_(thread_call) { thread_call = call; }
    ~Call() { thread_call = before_; }
    Call(const Call&)            = delete;
    Call& operator=(const Call&) = delete;

    private:
    const ThreadCall before_;
};

/// Records the kernels of calls during its lifetime instead of launching them.
class Recorded : public Call
{
    public:
    explicit Recorded(std::vector<Noted>& noted) : Call({thread_call.again, thread_call.call, &noted}) {}
};

/// Calls `run(stream)`, which may be repeated during the call, without measuring or printing.
///
/// It is not repeated if the arguments own memory: in later trees they contain functions of the caller that
/// allocate, and a second call may free the first result.
template <typename Arguments, typename Stream, typename Run>
float repeatable(const Arguments&, const Stream& stream, Run run)
{
    if constexpr(std::is_trivially_copy_constructible_v<Arguments> && std::is_trivially_destructible_v<Arguments>)
    {
        auto again = [&] {
            Stream quiet       = stream;
            quiet.time_kernel_ = false;
            quiet.log_level_   = 0;
            static_cast<void>(run(quiet));
        };
        const Call call({[](void* of) { (*static_cast<decltype(again)*>(of))(); }, &again, thread_call.noted});
        return run(stream);
    }
    else
        return run(stream);
}

} // namespace qola_entry
