// Says what it did of all that a newer system does otherwise than one of manylinux_2_28.
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sstream>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace {

int constructed = 0;

struct Static
{
    Static() { ++constructed; }
    ~Static() { std::puts("destroyed"); }
} object;

template <class Stream>
void say(const char* name)
{
    Stream stream;
    if constexpr(requires { stream << 1; })
        stream << name;
    const std::string copied = stream.str();
    std::printf("%s '%s' '%s'\n", name, copied.c_str(), std::move(stream).str().c_str());
}

void say_stat(const char* name, int failed, const struct stat& status)
{
    std::printf("%s %d %lld %o\n", name, failed, static_cast<long long>(status.st_size),
                static_cast<unsigned>(status.st_mode));
}

struct Counted
{
    static inline int alive = 0;
    Counted() { ++alive; }
    Counted(const Counted&) { ++alive; }
    ~Counted() { --alive; }
};

void say_exceptions()
{
    std::exception_ptr kept;
    try
    {
        throw Counted();
    }
    catch(...)
    {
        const std::exception_ptr one = std::current_exception();
        std::vector<std::exception_ptr> copies(3, one);
        kept = copies[1];
    }
    std::printf("exceptions %d", Counted::alive);
    try
    {
        std::rethrow_exception(kept);
    }
    catch(const Counted&)
    {
        std::printf(" %d", Counted::alive);
    }
    kept = nullptr;
    std::printf(" %d\n", Counted::alive);
}

} // namespace

int main(int count, char** words)
{
    std::printf("arguments %d %s\n", count, words[count - 1]);
    std::printf("constructed %d\n", constructed);
    say<std::ostringstream>("ostringstream");
    say<std::stringstream>("stringstream");
    say<std::istringstream>("istringstream");

    struct stat status;
    int failed = stat(words[1], &status);
    say_stat("stat", failed, status);
    failed = lstat(words[1], &status);
    say_stat("lstat", failed, status);
    if(std::FILE* file = std::fopen(words[1], "r"))
    {
        failed = fstat(fileno(file), &status);
        say_stat("fstat", failed, status);
        std::fclose(file);
    }
    std::printf("missing %d\n", stat("/nowhere", &status));

    void* library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    auto* root    = reinterpret_cast<double (*)(double)>(dlsym(library, "sqrt"));
    Dl_info info{};
    std::printf("sqrt %g %d\n", root(16), dladdr(reinterpret_cast<void*>(root), &info));
    std::printf("dlopen %d %s\n", dlopen("/nowhere.so", RTLD_NOW) != nullptr, dlerror());

    std::once_flag once;
    auto shared = std::make_shared<int>(0);
    std::vector<std::thread> threads;
    for(int i = 0; i < 4; ++i)
        threads.emplace_back([&once, shared] { std::call_once(once, [&] { ++*shared; }); });
    for(std::thread& thread : threads)
        thread.join();
    std::printf("once %d %ld\n", *shared, shared.use_count());

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    std::printf("blocked %d\n", sigismember(&after, SIGTERM));

    try
    {
        throw std::runtime_error("caught");
    }
    catch(const std::exception& error)
    {
        std::puts(error.what());
    }
    say_exceptions();
    try
    {
        // As many that their size is no size_t: std::__throw_bad_array_new_length.
        volatile std::size_t many = static_cast<std::size_t>(-1) / 4;
        std::printf("%p\n", static_cast<void*>(std::allocator<double>().allocate(many)));
    }
    catch(const std::bad_array_new_length&)
    {
        std::puts("bad_array_new_length");
    }
    return 7;
}
