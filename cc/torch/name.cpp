// PyInit of a further name of a module: calls that of the module, with which this library is linked.
#define QOLA_JOIN_(a, b) a##b
#define QOLA_JOIN(a, b) QOLA_JOIN_(a, b)

extern "C" void* QOLA_JOIN(PyInit_, QOLA_MODULE)();

extern "C" __attribute__((visibility("default"))) void* QOLA_JOIN(PyInit_, QOLA_NAME)()
{
    return QOLA_JOIN(PyInit_, QOLA_MODULE)();
}
