// Names alone, to link against: at run time it is the system's libdl.so.2, or libc.
extern "C" {

#define QOLA_NAME(name) \
    __attribute__((visibility("default"))) void name() {}

QOLA_NAME(dladdr)
QOLA_NAME(dlclose)
QOLA_NAME(dlerror)
QOLA_NAME(dlopen)
QOLA_NAME(dlsym)
}
