// GLIBC_2.32: whether a process has one thread, which shared_ptr asks. Without the answer it counts
// as if there were more.
#include <features.h>

#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>

extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
#endif
