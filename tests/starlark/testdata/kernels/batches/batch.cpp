#include "../kernel_gfx950.cpp"
#include "../kernel_more.cpp"
