// A stub to link against; at run time the system's libdl.so.2 or libc is used.
extern "C" {

#define QOLA_NAME(name) \
    __attribute__((visibility("default"))) void name() {}

QOLA_NAME(dladdr)
QOLA_NAME(dlclose)
QOLA_NAME(dlerror)
QOLA_NAME(dlopen)
QOLA_NAME(dlsym)
}
