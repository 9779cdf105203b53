// PyInit of a torch module: compares PyTorch's version with the one that the module was compiled for, and
// calls AITER's own PyInit.
#include <Python.h>

#include <cstring>

#include "qola_torch_version.h"

#define QOLA_JOIN_(a, b) a##b
#define QOLA_JOIN(a, b) QOLA_JOIN_(a, b)
#define QOLA_TEXT_(a) #a
#define QOLA_TEXT(a) QOLA_TEXT_(a)

extern "C" PyObject* QOLA_JOIN(qola_init_, QOLA_MODULE)();

namespace
{

/// Sets Python's exception and returns false if the imported PyTorch has another version.
bool is_ours()
{
    PyObject* torch = PyImport_ImportModule("torch");
    if(torch == nullptr)
        return false;
    PyObject* version = PyObject_GetAttrString(torch, "__version__");
    Py_DECREF(torch);
    PyObject* text = version == nullptr ? nullptr : PyObject_Str(version);
    Py_XDECREF(version);
    const char* found = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
    const bool same = found != nullptr && std::strcmp(found, QOLA_TORCH_VERSION) == 0;
    if(found != nullptr && !same)
        PyErr_Format(PyExc_ImportError,
                     "%s was built for PyTorch %s, and this is PyTorch %s: build it again with this one",
                     QOLA_TEXT(QOLA_MODULE),
                     QOLA_TORCH_VERSION,
                     found);
    Py_XDECREF(text);
    return same;
}

} // namespace

extern "C" __attribute__((visibility("default"))) PyObject* QOLA_JOIN(PyInit_, QOLA_MODULE)()
{
    return is_ours() ? QOLA_JOIN(qola_init_, QOLA_MODULE)() : nullptr;
}
