// Cooperative groups below the grid: blocks, tiles and active lanes.
#include "check.h"

#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

namespace groups = cooperative_groups;

constexpr int THREADS = 128;
constexpr int TILE    = 16;

__global__ void sums(int* of_tiles, int* of_block, int* active)
{
    __shared__ int total;
    const auto block = groups::this_thread_block();
    const auto tile  = groups::tiled_partition<TILE>(block);
    if(block.thread_rank() == 0)
        total = 0;
    block.sync();
    int sum = static_cast<int>(block.thread_rank());
    for(int distance = TILE / 2; distance > 0; distance /= 2)
        sum += tile.shfl_down(sum, distance);
    if(tile.thread_rank() == 0)
    {
        of_tiles[block.thread_rank() / TILE] = sum;
        atomicAdd(&total, sum);
    }
    block.sync();
    if(block.thread_rank() % 3 == 0)
    {
        const auto lanes = groups::coalesced_threads();
        if(lanes.thread_rank() == 0)
            active[block.thread_rank() / warpSize] = static_cast<int>(lanes.size());
    }
    if(block.thread_rank() == block.size() - 1)
        *of_block = total;
}

// The registers admit a block of the largest size, twice; LDS for two blocks admits no more of them.
int wrong_occupancy(const void* kernel)
{
    hipDeviceProp_t device;
    CHECK(hipGetDeviceProperties(&device, 0));
    int blocks = 0, grid = 0, block = 0, wrong = 0;
    CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, THREADS, 0));
    wrong += blocks != 2048 / THREADS;
    CHECK(hipOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0));
    wrong += block != 1024 || grid != 2 * device.multiProcessorCount;
    CHECK(hipOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 65));
    wrong += block != 128 || grid != 16 * device.multiProcessorCount;
    CHECK(hipOccupancyMaxPotentialBlockSize(&grid, &block, kernel, device.sharedMemPerBlock / 2 - 1024, 65));
    wrong += block != 128 || grid != 2 * device.multiProcessorCount;
    if(wrong != 0)
        std::fprintf(stderr, "%d wrong: %d blocks, block of %d, grid of %d\n", wrong, blocks, block, grid);
    return wrong;
}

int main()
{
    int* results = nullptr;
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&results), 16 * sizeof(int), 0));
    int* parts[]      = {results, results + 8, results + 9};
    void* arguments[] = {&parts[0], &parts[1], &parts[2]};
    const auto kernel = reinterpret_cast<const void*>(sums);
    int cooperative   = 0;
    CHECK(hipDeviceGetAttribute(&cooperative, hipDeviceAttributeCooperativeLaunch, 0));
    CHECK(hipLaunchCooperativeKernel(kernel, dim3(1), dim3(THREADS), arguments, 0, nullptr));
    // More blocks than run at once: they could not wait for each other.
    const hipError_t many = hipLaunchCooperativeKernel(kernel, dim3(1 << 20), dim3(THREADS), arguments, 0, nullptr);
    CHECK(hipDeviceSynchronize());
    int wrong = cooperative != 1 || many != hipErrorCooperativeLaunchTooLarge;
    wrong += wrong_occupancy(kernel);
    wrong += results[8] != THREADS * (THREADS - 1) / 2;
    for(int tile = 0; tile < THREADS / TILE; ++tile)
        wrong += results[tile] != TILE * TILE * tile + TILE * (TILE - 1) / 2;
    // Of the lanes 0 to 63, and of 64 to 127, every third rank.
    wrong += results[9] != 22;
    wrong += results[10] != 21;
    if(wrong != 0)
        std::fprintf(stderr, "%d wrong: %d %d %d %d\n", wrong, results[0], results[8], results[9], results[10]);
    CHECK(hipHostFree(results));
    return wrong != 0;
}
