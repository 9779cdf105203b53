// Asks a lazy library's runtime for kernels, as dispatch would:
//
//   ask THREADS TIMES ROW[+COUNT]...
//
// Each thread asks for each row so many times. A line for each row: "<row> ok <milliseconds>
// <what its kernels launched>", or "<row> status <number>". With ASK_LAUNCH=1 the functions are
// called, which launch the kernel.
#include "qola_lazy.h"
#include "qola_status.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

std::mutex mutex;

void ask(const std::string& what, int times)
{
    const std::size_t plus = what.find('+');
    const auto row         = static_cast<unsigned>(std::atoi(what.c_str()));
    const unsigned count =
        plus == std::string::npos ? 1 : static_cast<unsigned>(std::atoi(what.c_str() + plus + 1));
    for(int time = 0; time < times; ++time)
    {
        const auto start = std::chrono::steady_clock::now();
        std::string answer;
        try
        {
            const qola_kernel_function* functions = qola_lazy::functions(row, count);
            const std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - start;
            using Launch       = int (*)();
            const char* launch = std::getenv("ASK_LAUNCH");
            const int value    = launch ? reinterpret_cast<Launch>(functions[0])() : 0;
            answer             = "ok " + std::to_string(took.count()) + " " + std::to_string(value);
        }
        catch(const qola_entry::StatusError& error)
        {
            answer = "status " + std::to_string(static_cast<int>(error.status));
        }
        const std::lock_guard<std::mutex> lock(mutex);
        std::printf("%u %s\n", row, answer.c_str());
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
