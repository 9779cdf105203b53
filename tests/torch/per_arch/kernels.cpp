// The same functions for each arch, with the generated header of this arch.
#include "tile.h"

#include <hip/hip_runtime.h>

#include <stdexcept>
#include <string>

__global__ void fill(int* output) { output[threadIdx.x] = tile_size; }

int tile() { return tile_size; }

void launch()
{
    int* output = nullptr;
    if(hipMalloc(&output, tile_size * sizeof(int)) != hipSuccess)
        throw std::runtime_error("hipMalloc");
    fill<<<1, tile_size>>>(output);
    if(hipGetLastError() != hipSuccess)
        throw std::runtime_error("launch");
}

void fail() { throw std::runtime_error("tile " + std::to_string(tile_size)); }
