// GLIBC_2.34: since then libc itself runs a program's constructors. An older libc runs the functions that crt1.o
// passes to it, so pass the functions that older versions of crt1.o passed.
#include <features.h>

#if __GLIBC_PREREQ(2, 34)
namespace {

using Main = int(int, char**, char**);
using Step = void(int, char**, char**);

} // namespace

extern "C" {

#pragma GCC visibility push(hidden)

extern Step* __preinit_array_start[];
extern Step* __preinit_array_end[];
extern Step* __init_array_start[];
extern Step* __init_array_end[];
void _init();

#pragma GCC visibility pop

int qola_start_main(Main* main, int count, char** words, Step* before, void (*after)(),
                    void (*unload)(), void* stack);
__asm__(".symver qola_start_main, __libc_start_main@GLIBC_2.2.5");

static void construct(int count, char** words, char** environment)
{
    for(Step** step = __preinit_array_start; step != __preinit_array_end; ++step)
        (*step)(count, words, environment);
    _init();
    for(Step** step = __init_array_start; step != __init_array_end; ++step)
        (*step)(count, words, environment);
}

__attribute__((visibility("hidden"))) int __libc_start_main(Main* main, int count, char** words,
                                                            Step*, void (*after)(),
                                                            void (*unload)(), void* stack)
{
    return qola_start_main(main, count, words, construct, after, unload, stack);
}
}
#endif
