// GLIBC_2.33: functions that were in libc_nonshared.a before, around those of glibc 2.2.5.
#include <features.h>

#if __GLIBC_PREREQ(2, 33)
#include <sys/stat.h>

// Newer systems have these for older libraries alone, and no header declares them.
#define QOLA_OLD(name) __asm__(".symver " #name ", " #name "@GLIBC_2.2.5")

extern "C" {

int __fxstat(int version, int file, struct stat* status);
int __lxstat(int version, const char* path, struct stat* status);
int __xstat(int version, const char* path, struct stat* status);
QOLA_OLD(__fxstat);
QOLA_OLD(__lxstat);
QOLA_OLD(__xstat);

#pragma GCC visibility push(hidden)

// 1 is the version of struct stat on x86-64, which has had no other.
int fstat(int file, struct stat* status) noexcept { return __fxstat(1, file, status); }
int lstat(const char* path, struct stat* status) noexcept { return __lxstat(1, path, status); }
int stat(const char* path, struct stat* status) noexcept { return __xstat(1, path, status); }

#pragma GCC visibility pop
}
#endif
