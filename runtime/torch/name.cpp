// Forwards to PyInit of a module. The linker gives this function the further names by which Python imports the module.
#define QOLA_JOIN_(a, b) a##b
#define QOLA_JOIN(a, b) QOLA_JOIN_(a, b)

extern "C" void* QOLA_JOIN(PyInit_, QOLA_MODULE)();

extern "C" __attribute__((visibility("hidden"))) void* qola_forward() { return QOLA_JOIN(PyInit_, QOLA_MODULE)(); }
