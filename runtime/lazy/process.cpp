#include "process.h"

#include "files.h"
#include "text.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReportFd = 3;

/// The guard's report: its failure, or the program's end.
struct Report
{
    int code;   ///< errno of a start that failed, else 0
    int status; ///< as of waitpid
};

/// All data that the child reads after fork(), prepared before, because it must not allocate.
struct Prepared
{
    std::vector<char*> arguments;
    std::vector<char*> environment;
    const char* directory;
    int output;
    int report;
    pid_t parent;
};

std::vector<char*> pointers(const std::vector<std::string>& texts)
{
    std::vector<char*> result;
    for(const std::string& text : texts)
        result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
}

void send(int fd, const Report& report)
{
    // Smaller than PIPE_BUF, so the write is atomic.
    while(write(fd, &report, sizeof report) < 0 && errno == EINTR) {}
}

void reset_signals()
{
    for(int signal = 1; signal < NSIG; ++signal)
    {
        struct sigaction action = {};
        action.sa_handler       = SIG_DFL;
        sigaction(signal, &action, nullptr);
    }
}

/// Runs in the program's process until it starts. Sends errno on failure.
[[noreturn]] void start(const Prepared& prepared)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(prepared.arguments[0], prepared.arguments.data(), prepared.environment.data());
    send(kReportFd, {errno, 0});
    _exit(127);
}

/// Runs in a guard process between this one and the program. The signal at a parent's death only reaches
/// the direct child, but a compiler starts processes of its own: the guard gets the signal and kills the
/// whole group. It only makes calls that are safe after fork().
[[noreturn]] void guard(const Prepared& prepared)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    reset_signals();
    setpgid(0, 0);
    // SIGTERM, not SIGKILL, because the guard must kill the group first.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if(getppid() != prepared.parent)
        _exit(127);

    // Move them above the target numbers: open() can return 0 to 2 if these are closed in this process.
    const int null   = fcntl(open("/dev/null", O_RDONLY | O_CLOEXEC), F_DUPFD_CLOEXEC, 10);
    const int output = fcntl(prepared.output, F_DUPFD_CLOEXEC, 10);
    const int report = fcntl(prepared.report, F_DUPFD_CLOEXEC, 10);
    dup2(report, kReportFd);
    fcntl(kReportFd, F_SETFD, FD_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    // Close locks and devices of the parent, so that a compiler does not keep them open.
#ifdef SYS_close_range
    if(syscall(SYS_close_range, kReportFd + 1, ~0u, 0) != 0)
#endif
        for(int fd = kReportFd + 1; fd < 65536; ++fd)
            close(fd);
    if(chdir(prepared.directory) != 0)
    {
        send(kReportFd, {errno, 0});
        _exit(127);
    }

    const pid_t child = fork();
    if(child == 0)
        start(prepared);
    if(child < 0)
    {
        send(kReportFd, {errno, 0});
        _exit(127);
    }
    sigset_t awaited;
    sigemptyset(&awaited);
    for(const int signal : {SIGTERM, SIGCHLD, SIGINT, SIGHUP})
        sigaddset(&awaited, signal);
    for(;;)
    {
        const int signal = sigwaitinfo(&awaited, nullptr);
        if(signal == SIGTERM || signal == SIGINT || signal == SIGHUP)
            kill(0, SIGKILL);
        int status        = 0;
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if(ended != child)
            continue;
        send(kReportFd, {0, status});
        _exit(0);
    }
}

void reap(pid_t child)
{
    // ECHILD: the process ignores SIGCHLD, or has a handler that was faster.
    while(waitpid(child, nullptr, 0) < 0 && errno == EINTR) {}
}

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

std::string Ended::text(int timeout) const
{
    if(timed_out)
        return "no end within " + std::to_string(timeout) + " s";
    if(WIFSIGNALED(status))
        return "signal " + std::to_string(WTERMSIG(status));
    return "exit code " + std::to_string(WEXITSTATUS(status));
}

Ended run(const Command& command, const std::function<void()>& slow)
{
    const Fd output = open_file(command.output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if(!output)
        throw SystemError("create " + command.output, errno);
    int ends[2];
    if(pipe2(ends, O_CLOEXEC) != 0)
        throw SystemError("pipe", errno);
    const Fd reading(ends[0]);
    Fd writing(ends[1]);
    const Prepared prepared{pointers(command.arguments),
                            pointers(command.environment),
                            command.directory.c_str(),
                            output.get(),
                            writing.get(),
                            getpid()};

    // No handler of this process may run in the child.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t child = fork();
    if(child == 0)
        guard(prepared);
    const int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if(child < 0)
        throw SystemError("fork", code);
    setpgid(child, child);
    writing = Fd();

    Ended ended;
    Report report{0, 0};
    const auto start    = Clock::now();
    const auto deadline = start + std::chrono::seconds(command.timeout);
    bool told           = !slow;
    for(;;)
    {
        const auto now        = Clock::now();
        const auto next       = told ? deadline : std::min(deadline, start + std::chrono::seconds(2));
        const auto left       = std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count();
        struct pollfd waiting = {reading.get(), POLLIN, 0};
        // Rounded up, to avoid polling in the last fraction of a millisecond.
        const int ready = poll(&waiting, 1, static_cast<int>(std::max<long long>(0, left + 1)));
        if(ready < 0 && errno == EINTR)
            continue;
        if(ready > 0)
        {
            const ssize_t got = read(reading.get(), &report, sizeof report);
            if(got < 0 && errno == EINTR)
                continue;
            // Another process killed the guard and with it the program.
            if(got != static_cast<ssize_t>(sizeof report))
                ended.status = SIGKILL;
            break;
        }
        if(!told && Clock::now() >= start + std::chrono::seconds(2))
        {
            told = true;
            slow();
        }
        if(Clock::now() >= deadline)
        {
            ended.timed_out = true;
            break;
        }
    }
    // End remaining processes of the program's group.
    kill(-child, SIGKILL);
    reap(child);
    if(report.code != 0)
        throw SystemError("start " + command.arguments[0], report.code);
    if(report.status != 0)
        ended.status = report.status;
    return ended;
}

std::size_t compiles_at_a_time(int asked)
{
    if(asked > 0)
        return static_cast<std::size_t>(asked);
    const long processors = static_cast<long>(std::thread::hardware_concurrency());
    return static_cast<std::size_t>(std::max(1L, std::min(processors, mebibytes_available() / kMebibytesOfCompile)));
}

void side_by_side(std::size_t count, std::size_t at_a_time, const std::function<void(std::size_t)>& work)
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
