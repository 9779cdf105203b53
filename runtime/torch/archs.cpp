// The init function of a module with sources for each arch: calls that of the current device's arch.
//
// QOLA_EACH_ARCH is QOLA_ARCH(gfx942)QOLA_ARCH(gfx950) for these archs.
#include <Python.h>

#include "runtime/lazy/device.h"

#include <stdexcept>
#include <string>

#define QOLA_JOIN_(a, b) a##b
#define QOLA_JOIN(a, b) QOLA_JOIN_(a, b)
#define QOLA_TEXT_(a) #a
#define QOLA_TEXT(a) QOLA_TEXT_(a)
#define QOLA_INIT QOLA_JOIN(qola_init_, QOLA_MODULE)
#define QOLA_INIT_OF(arch) QOLA_JOIN(QOLA_JOIN(QOLA_INIT, _), arch)

#define QOLA_ARCH(arch) extern "C" PyObject* QOLA_INIT_OF(arch)();
QOLA_EACH_ARCH
#undef QOLA_ARCH

namespace
{

void check(hipError_t error, const char* call)
{
    if(error == hipSuccess)
        return;
    // Composable Kernel would attribute the error to its next launch.
    static_cast<void>(hipGetLastError());
    throw std::runtime_error(std::string(call) + ": " + hipGetErrorString(error));
}

PyObject* init()
{
    const std::string& arch = qola_runtime::arch_of_current_device(check);
    std::string archs;
#define QOLA_ARCH(own)            \
    if(arch == #own)              \
        return QOLA_INIT_OF(own)(); \
    archs += archs.empty() ? #own : ", " #own;
    QOLA_EACH_ARCH
#undef QOLA_ARCH
    PyErr_Format(PyExc_ImportError,
                 "%s was built for %s, and this device is %s: add \"%s\" to [build].architectures of the manifest, "
                 "and build it again",
                 QOLA_TEXT(QOLA_MODULE),
                 archs.c_str(),
                 arch.c_str(),
                 arch.c_str());
    return nullptr;
}

} // namespace

extern "C" PyObject* QOLA_INIT()
{
    try
    {
        return init();
    }
    catch(const std::runtime_error& error)
    {
        PyErr_Format(PyExc_ImportError,
                     "%s has other kernels for each arch, and the device's is unknown: %s",
                     QOLA_TEXT(QOLA_MODULE),
                     error.what());
        return nullptr;
    }
}
