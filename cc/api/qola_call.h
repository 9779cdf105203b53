// What a thread is doing for an entry point: how a lazy library learns which kernels a call launches
// before the first of them runs. The entry points write it; a full library has nobody who reads it.
#ifndef QOLA_CALL_H
#define QOLA_CALL_H

#include <type_traits>

namespace qola_entry {

/// Of a thread.
struct ThreadCall
{
    void (*again)(void* call) = nullptr; ///< asks once more; null outside of a call that may be repeated
    void* call                = nullptr; ///< what `again` takes
    bool recording            = false;   ///< it is being asked once more: nothing may be launched
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
            {[](void* of) { (*static_cast<decltype(again)*>(of))(); }, &again, false});
        return run(stream);
    }
    else
        return run(stream);
}

} // namespace qola_entry

#endif // QOLA_CALL_H
