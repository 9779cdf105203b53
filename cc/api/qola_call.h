// What a thread is doing for an entry point: how a library learns which kernels a call launches before
// the first of them runs, or without any that runs.
#ifndef QOLA_CALL_H
#define QOLA_CALL_H

#include <algorithm>
#include <type_traits>
#include <vector>

namespace qola_entry {

/// A kernel that a call would have launched.
struct Noted
{
    using Load = void(const std::vector<unsigned>& rows);

    /// Of a lazy library, loaded or not: the kernel instance, its row in the library's table, and what
    /// loads rows, or throws.
    static Noted of_row(const char* kernel, unsigned row, Load* load)
    {
        return {kernel, row, load, nullptr, nullptr};
    }
    /// What hipLaunchKernel was asked for.
    static Noted of_program(const void* symbol) { return {nullptr, 0, nullptr, symbol, nullptr}; }
    /// What hipModuleLaunchKernel was asked for.
    static Noted of_module(void* function) { return {nullptr, 0, nullptr, nullptr, function}; }

    const char* kernel;
    unsigned row;
    Load* load;
    const void* symbol;
    void* function;
};

/// Rows of a lazy library among what was noted, each once.
inline std::vector<unsigned> rows_of(const std::vector<Noted>& noted)
{
    std::vector<unsigned> rows;
    for(const Noted& one : noted)
        if(one.kernel != nullptr && std::find(rows.begin(), rows.end(), one.row) == rows.end())
            rows.push_back(one.row);
    return rows;
}

/// Of a thread.
struct ThreadCall
{
    void (*again)(void* call) = nullptr; ///< asks once more; null outside of a call that may be repeated
    void* call                = nullptr; ///< what `again` takes
    /// Where kernels are noted while a call is recorded: nothing may be launched. Else null.
    std::vector<Noted>* noted = nullptr;
};
inline thread_local ThreadCall thread_call;

/// Sets `thread_call`, and sets it back at the end of its life.
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

/// Has the kernels of what is called in its life noted, and none launched.
class Recorded : public Call
{
    public:
    explicit Recorded(std::vector<Noted>& noted)
        : Call({thread_call.again, thread_call.call, &noted})
    {
    }
};

/// Calls `run(stream)`, which may be called again meanwhile, with nothing measured or printed.
///
/// Not again where the arguments own something: later trees have functions of the caller in theirs
/// that allocate, and who is asked twice may free what the first answer was.
template <typename Arguments, typename Stream, typename Run>
float repeatable(const Arguments&, const Stream& stream, Run run)
{
    if constexpr(std::is_trivially_copy_constructible_v<Arguments> &&
                 std::is_trivially_destructible_v<Arguments>)
    {
        auto again = [&] {
            Stream quiet       = stream;
            quiet.time_kernel_ = false;
            quiet.log_level_   = 0;
            static_cast<void>(run(quiet));
        };
        const Call call(
            {[](void* of) { (*static_cast<decltype(again)*>(of))(); }, &again, thread_call.noted});
        return run(stream);
    }
    else
        return run(stream);
}

} // namespace qola_entry

#endif // QOLA_CALL_H
