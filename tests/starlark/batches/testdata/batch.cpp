#include "../../testdata/kernel_gfx950.cpp"
#include "../../testdata/kernel_more.cpp"
