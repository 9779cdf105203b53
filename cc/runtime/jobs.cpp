#include "jobs.h"

#include "files.h"
#include "text.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <signal.h>

namespace qola_runtime {
namespace {

/// Peak memory of compiling a large kernel.
constexpr long kMebibytesOfCompile = 1400;

/// Returns the memory available for new processes in MiB; unknown limits are ignored.
long mebibytes_available()
{
    long available            = 1L << 40;
    const std::string machine = read_start("/proc/meminfo", 4096);
    for(const std::string_view line : lines(machine))
        if(const auto words = split(line, " "); words.size() > 1 && words[0] == "MemAvailable:")
            available = number(words[1], 0, 1L << 50).value_or(available << 10) >> 10;
    // The container's limit, without the memory of this process.
    const std::string container = read_start("/sys/fs/cgroup/memory.max", 4096);
    for(const std::string_view line : lines(container))
        if(const auto bytes = number(line, 0, 1L << 60))
            available = std::min(available, *bytes >> 20);
    return available;
}

/// Starts a thread with all signals blocked, so that handlers keep running in the same threads.
std::thread quiet_thread(const std::function<void()>& work)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    try
    {
        thread = std::thread(work);
    }
    catch(const std::system_error&)
    {
        // No more threads: the others take its work.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

} // namespace

std::size_t compiles_at_a_time(int asked)
{
    if(asked > 0)
        return static_cast<std::size_t>(asked);
    const long processors = static_cast<long>(std::thread::hardware_concurrency());
    return static_cast<std::size_t>(
        std::max(1L, std::min(processors, mebibytes_available() / kMebibytesOfCompile)));
}

void side_by_side(std::size_t count,
                  std::size_t at_a_time,
                  const std::function<void(std::size_t)>& work)
{
    std::atomic<std::size_t> next{0};
    const auto part = [&] {
        for(std::size_t at; (at = next++) < count;)
            work(at);
    };
    std::vector<std::thread> threads;
    for(std::size_t other = 1; other < std::min(at_a_time, count); ++other)
        threads.push_back(quiet_thread(part));
    part();
    for(std::thread& thread : threads)
        if(thread.joinable())
            thread.join();
}

void in_background(const std::function<void()>& work)
{
    if(std::thread thread = quiet_thread(work); thread.joinable())
        thread.detach();
    else
        work();
}

} // namespace qola_runtime
