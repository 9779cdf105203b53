// Asks a lazy library's runtime for kernels, as dispatch would:
//
//   ask THREADS TIMES WHAT...
//
// Each thread asks for each WHAT so many times. ROW[+COUNT] is a kernel: a line "<row> ok
// <milliseconds> <what its kernels launched>", or "<row> status <number>". With ASK_LAUNCH=1 the
// functions are called, which launch the kernel.
//
// ROW[+COUNT],... is a call of an entry point that launches these, with a line of the same form:
// "<call> ok <milliseconds> <what each launched, with commas between> <times it was run>". In it "asm"
// launches what is no kernel instance, "error" leaves an error of HIP's behind, and "?ROW" only asks a
// kernel for something. With ASK_PREPARE=1 it is not called: its kernels are had, and counted. With ASK_OWNS=1 its arguments own something. ASK_PAUSE is how many milliseconds
// a thread waits before it asks for the same again.
#include "qola_call.h"
#include "qola_lazy.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <hip/hip_runtime_api.h>

namespace {

std::mutex mutex;

struct Stream
{
    bool time_kernel_ = true;
    int log_level_    = 1;
};

struct Kernel
{
    explicit Kernel(const std::string& text)
    {
        const std::size_t plus = text.find('+');
        row                    = static_cast<unsigned>(std::atoi(text.c_str()));
        if(plus != std::string::npos)
            count = static_cast<unsigned>(std::atoi(text.c_str() + plus + 1));
    }
    unsigned row   = 0;
    unsigned count = 1;
};

int launch(const qola_kernel_function* functions)
{
    using Launch = int (*)();
    return std::getenv("ASK_LAUNCH") ? reinterpret_cast<Launch>(functions[0])() : 0;
}

/// What stands in the libraries beside the stubs, such as the launch of an assembly kernel: HIP refuses
/// this one where it gets there.
std::string launch_other()
{
    const hipError_t error =
        hipModuleLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    if((qola_entry::thread_call.noted != nullptr) != (error == hipSuccess))
        std::abort();
    return "refused";
}

std::string run(const std::string& call, const Stream& stream)
{
    const bool recorded = qola_entry::thread_call.noted != nullptr;
    if(recorded == (stream.time_kernel_ || stream.log_level_ != 0))
        std::abort();
    std::string answer;
    std::istringstream parts(call);
    for(std::string part; std::getline(parts, part, ',');)
    {
        std::string one;
        if(part == "asm" || part == "error")
            one = launch_other();
        else if(part[0] == '?')
            one = qola_lazy::functions(Kernel(part.substr(1)).row, 1) ? "known" : "";
        else
        {
            const Kernel kernel(part);
            const qola_kernel_function* found = qola_lazy::launching(kernel.row, kernel.count);
            one = found ? std::to_string(launch(found)) : "";
        }
        if(part == "asm")
            static_cast<void>(hipGetLastError());
        answer += (answer.empty() ? "" : ",") + one;
    }
    return answer;
}

template <typename Arguments>
std::string values_of(const std::string& call)
{
    std::string answer;
    int runs = 0;
    qola_entry::repeatable(Arguments(), Stream(), [&](const Stream& stream) {
        ++runs;
        answer = run(call, stream);
        return 0.f;
    });
    return answer + " " + std::to_string(runs);
}

/// As <entry>_prepare of qola_c.h: returns for how many kernels.
std::string prepare(const std::string& call)
{
    std::vector<qola_entry::Noted> noted;
    {
        const qola_entry::Recorded recorded(noted);
        qola_entry::repeatable(Stream(), Stream{false, 0}, [&](const Stream& stream) {
            run(call, stream);
            return 0.f;
        });
    }
    const auto rows = qola_entry::rows_of(noted);
    noted.front().load(rows);
    return std::to_string(rows.size());
}

std::string values(const std::string& what)
{
    if(std::getenv("ASK_PREPARE") != nullptr)
        return prepare(what);
    if(what.find(',') == std::string::npos)
    {
        const Kernel kernel(what);
        return std::to_string(launch(qola_lazy::functions(kernel.row, kernel.count)));
    }
    return std::getenv("ASK_OWNS") ? values_of<std::string>(what) : values_of<Stream>(what);
}

void ask(const std::string& what, int times)
{
    const char* pause = std::getenv("ASK_PAUSE");
    for(int time = 0; time < times; ++time)
    {
        if(time > 0 && pause != nullptr)
            std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(pause)));
        const auto start = std::chrono::steady_clock::now();
        std::string answer;
        try
        {
            const std::string found = values(what);
            const std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - start;
            answer = "ok " + std::to_string(took.count()) + " " + found;
        }
        catch(const qola_entry::StatusError& error)
        {
            answer = "status " + std::to_string(static_cast<int>(error.status));
        }
        const std::lock_guard<std::mutex> lock(mutex);
        std::printf("%s %s\n", what.c_str(), answer.c_str());
    }
}

} // namespace

int main(int argc, char** argv)
{
    if(argc < 4)
        return 2;
    std::vector<std::thread> threads;
    for(int thread = 0; thread < std::atoi(argv[1]); ++thread)
        threads.emplace_back([&] {
            for(int at = 3; at < argc; ++at)
                ask(argv[at], std::atoi(argv[2]));
        });
    for(std::thread& thread : threads)
        thread.join();
    return 0;
}
