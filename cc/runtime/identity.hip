// What a compiler says of itself, its HIP and its C++ library: the identity that is part of a kernel's
// key. Preprocessed by itself, it has the one line that qola-kernels identity reads; included where
// QOLA_IDENTITY quotes, it is that line's text.
#ifndef QOLA_IDENTITY
#include <hip/hip_version.h>

#include <cstddef>
#define QOLA_IDENTITY(...) __VA_ARGS__
#endif
QOLA_IDENTITY(qola_identity __VERSION__ HIP_VERSION_MAJOR HIP_VERSION_MINOR HIP_VERSION_PATCH HIP_VERSION_GITHASH __GLIBCXX__)
