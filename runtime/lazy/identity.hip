// The versions that a compiler reports of itself, its HIP and its C++ library: the identity, which is part
// of a kernel's key. Preprocessed, this file has one line, which qola.lazy and the runtime parse. compile.cpp
// includes it with a QOLA_IDENTITY that makes the line a text.
#ifndef QOLA_IDENTITY
#include <hip/hip_version.h>

#include <cstddef>
#define QOLA_IDENTITY(...) __VA_ARGS__
#endif
QOLA_IDENTITY(qola_identity __VERSION__ HIP_VERSION_MAJOR HIP_VERSION_MINOR HIP_VERSION_PATCH HIP_VERSION_GITHASH __GLIBCXX__)
