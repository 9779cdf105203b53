// Waves of 32 lanes: sizes and indices of a grid, votes, shuffles, reductions, orders, scratch memory, matrices.
#include "check.h"

#include <cmath>
#include <cstdint>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

using Half8  = _Float16 __attribute__((ext_vector_type(8)));
using Half16 = _Float16 __attribute__((ext_vector_type(16)));
using Float8 = float __attribute__((ext_vector_type(8)));

constexpr int kBlock = 96; // Three waves.
constexpr int kTile  = 16; // Rows and columns of a matrix.
constexpr int kOwn   = 41; // Numbers of a thread: too many for registers.

__device__ int rank_in_grid()
{
    const int block = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    return block * static_cast<int>(blockDim.x * blockDim.y) + static_cast<int>(threadIdx.x + blockDim.x * threadIdx.y);
}

__global__ void saxpy(float a, const float* x, float* y, int count)
{
    const int i = rank_in_grid();
    if(i < count)
        y[i] = a * x[i] + y[i];
}

__global__ void reduce(const double* values, double* sums, unsigned* highest)
{
    __shared__ double parts[kBlock / 32];
    const int lane = static_cast<int>(threadIdx.x) % warpSize, wave = static_cast<int>(threadIdx.x) / warpSize;
    double sum     = values[blockIdx.x * kBlock + threadIdx.x];
    for(int distance = warpSize / 2; distance > 0; distance /= 2)
        sum += __shfl_xor(sum, distance);
    if(lane == 0)
        parts[wave] = sum;
    __syncthreads();
    if(threadIdx.x == 0)
        sums[blockIdx.x] = parts[0] + parts[1] + parts[2];
    atomicMax(highest, threadIdx.x * 7 % 89);
}

// By thread: lanes of its wave that vote, its place among them, the number behind it, steps of a loop.
__global__ void vote(int* votes)
{
    const int i        = static_cast<int>(threadIdx.x);
    const bool mine    = i % 3 == 0;
    const auto ballots = __ballot(mine);
    int steps          = 0;
    for(int n = i + 1; n != 1; ++steps)
        n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    votes[4 * i]     = __popcll(ballots);
    votes[4 * i + 1] = __popcll(ballots & ((1ull << i % warpSize) - 1));
    votes[4 * i + 2] = __shfl_down(i * i, 1);
    votes[4 * i + 3] = steps;
}

// Each thread sorts numbers in memory of its own, and gives the middle one, times an f16.
__global__ void sort(int64_t divisor, int64_t* middles, __half* halves)
{
    int64_t own[kOwn];
#pragma unroll 1
    for(int k = 0; k < kOwn; ++k)
        own[k] = static_cast<int64_t>(threadIdx.x + 1) * (k * 5 % kOwn) * 1000000007ll / divisor;
#pragma unroll 1
    for(int k = 1; k < kOwn; ++k)
    {
        const int64_t next = own[k];
        int place          = k;
        for(; place > 0 && own[place - 1] > next; --place)
            own[place] = own[place - 1];
        own[place] = next;
    }
    middles[threadIdx.x] = own[threadIdx.x % kOwn];
    halves[threadIdx.x]  = __hfma(__float2half(0.5f), halves[threadIdx.x], __float2half(1.25f));
}

#ifdef __GFX11__
// D = A B: a lane has a row of A and a column of B, and every second row of a column of D.
__global__ void multiply(const _Float16* a, const _Float16* b, float* d)
{
    const int column = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
    Half16 of_a, of_b;
    for(int k = 0; k < kTile; ++k)
    {
        of_a[k] = a[column * kTile + k];
        of_b[k] = b[k * kTile + column];
    }
    Float8 sums = {};
    sums        = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(of_a, of_b, sums);
    for(int row = 0; row < 8; ++row)
        d[(2 * row + first) * kTile + column] = sums[row];
}
#else
// D = A B: a lane has eight numbers of a row of A and of a column of B, and eight rows of a column of D.
__global__ void multiply(const _Float16* a, const _Float16* b, float* d)
{
    const int column = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile * 8;
    Half8 of_a, of_b;
    for(int k = 0; k < 8; ++k)
    {
        of_a[k] = a[column * kTile + first + k];
        of_b[k] = b[(first + k) * kTile + column];
    }
    Float8 sums = {};
    sums        = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(of_a, of_b, sums);
    for(int row = 0; row < 8; ++row)
        d[(first + row) * kTile + column] = sums[row];
}
#endif

// Numbers of a lane of A and of B, eight bits each, four in a register.
#ifdef __GFX11__
constexpr int kDepth = 16;
#define MULTIPLY_BYTES __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32
#else
constexpr int kDepth = 8;
#define MULTIPLY_BYTES __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12
#endif
using Bytes = int __attribute__((ext_vector_type(kDepth / 4)));
using Int8  = int __attribute__((ext_vector_type(8)));

// D = A B with signed numbers in A, and unsigned ones in B.
__global__ void multiply_bytes(const int8_t* a, const uint8_t* b, int* d)
{
    const int column = static_cast<int>(threadIdx.x) % kTile, half = static_cast<int>(threadIdx.x) / kTile;
    const int first = kDepth == kTile ? 0 : half * kDepth;
    Bytes of_a = {}, of_b = {};
    for(int k = 0; k < kDepth; ++k)
    {
        of_a[k / 4] |= static_cast<uint8_t>(a[column * kTile + first + k]) << 8 * (k % 4);
        of_b[k / 4] |= b[(first + k) * kTile + column] << 8 * (k % 4);
    }
    const Int8 sums = MULTIPLY_BYTES(true, of_a, false, of_b, Int8{}, false);
    for(int row = 0; row < 8; ++row)
        d[(kDepth == kTile ? 2 * row + half : first + row) * kTile + column] = sums[row];
}

// The numbers of each eight lanes in the other order.
__global__ void reverse(unsigned* numbers)
{
    constexpr unsigned kOrder = 7 | 6 << 3 | 5 << 6 | 4 << 9 | 3 << 12 | 2 << 15 | 1 << 18;
    numbers[threadIdx.x]      = __builtin_amdgcn_mov_dpp8(numbers[threadIdx.x], kOrder);
}

template <typename T>
T* allocate(int count)
{
    T* found = nullptr;
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&found), count * sizeof(T), 0));
    return found;
}

int main()
{
    int wrong         = 0;
    const auto expect = [&](bool right, const char* what, int place) {
        if(!right && ++wrong < 20)
            std::fprintf(stderr, "%s of %d is wrong\n", what, place);
    };

    hipDeviceProp_t properties;
    CHECK(hipGetDeviceProperties(&properties, 0));
    expect(properties.warpSize == 32, "warpSize", properties.warpSize);

    constexpr int kCount = 3 * 5 * 2 * 40 - 7;
    auto *x = allocate<float>(kCount), *y = allocate<float>(kCount);
    for(int i = 0; i < kCount; ++i)
        x[i] = static_cast<float>(i), y[i] = 0.25f;
    saxpy<<<dim3(3, 5, 2), dim3(10, 4)>>>(2.0f, x, y, kCount);
    CHECK(hipDeviceSynchronize());
    for(int i = 0; i < kCount; ++i)
        expect(y[i] == 2.0f * static_cast<float>(i) + 0.25f, "saxpy", i);

    auto *values = allocate<double>(4 * kBlock), *sums = allocate<double>(4);
    auto* highest = allocate<unsigned>(1);
    *highest      = 0;
    for(int i = 0; i < 4 * kBlock; ++i)
        values[i] = i * 0.5;
    reduce<<<4, kBlock>>>(values, sums, highest);
    CHECK(hipDeviceSynchronize());
    for(int block = 0; block < 4; ++block)
        expect(sums[block] == kBlock * 0.5 * (kBlock * block + (kBlock - 1) * 0.5), "sum", block);
    expect(*highest == 88, "atomicMax", static_cast<int>(*highest));

    auto* votes = allocate<int>(4 * kBlock);
    vote<<<1, kBlock>>>(votes);
    CHECK(hipDeviceSynchronize());
    for(int i = 0; i < kBlock; ++i)
    {
        const int wave = i / 32 * 32;
        int all = 0, below = 0, steps = 0;
        for(int other = wave; other < wave + 32; ++other)
            all += other % 3 == 0, below += other % 3 == 0 && other < i;
        for(int n = i + 1; n != 1; ++steps)
            n = n % 2 == 0 ? n / 2 : 3 * n + 1;
        const int behind = i % 32 == 31 ? i : i + 1;
        expect(votes[4 * i] == all && votes[4 * i + 1] == below, "vote", i);
        expect(votes[4 * i + 2] == behind * behind && votes[4 * i + 3] == steps, "shuffle or loop", i);
    }

    auto* middles = allocate<int64_t>(kBlock);
    auto* halves  = allocate<__half>(kBlock);
    for(int i = 0; i < kBlock; ++i)
        halves[i] = __float2half(static_cast<float>(i));
    sort<<<1, kBlock>>>(13, middles, halves);
    CHECK(hipDeviceSynchronize());
    for(int i = 0; i < kBlock; ++i)
    {
        expect(middles[i] == (i + 1ll) * (i % kOwn) * 1000000007ll / 13, "middle", i);
        expect(__half2float(halves[i]) == 0.5f * static_cast<float>(i) + 1.25f, "half", i);
    }

    auto *a = allocate<_Float16>(kTile * kTile), *b = allocate<_Float16>(kTile * kTile);
    auto* d = allocate<float>(kTile * kTile);
    for(int i = 0; i < kTile * kTile; ++i)
    {
        a[i] = static_cast<_Float16>((i * 7 % 31 - 15) * 0.25f);
        b[i] = static_cast<_Float16>((i * 11 % 29 - 14) * 0.5f);
    }
    multiply<<<1, 32>>>(a, b, d);
    CHECK(hipDeviceSynchronize());
    for(int i = 0; i < kTile * kTile; ++i)
    {
        float sum = 0;
        for(int k = 0; k < kTile; ++k)
            sum += static_cast<float>(a[i / kTile * kTile + k]) * static_cast<float>(b[k * kTile + i % kTile]);
        expect(d[i] == sum, "product", i);
    }

    auto* of_a    = allocate<int8_t>(kTile * kTile);
    auto* of_b    = allocate<uint8_t>(kTile * kTile);
    auto* of_d    = allocate<int>(kTile * kTile);
    auto* numbers = allocate<unsigned>(32);
    for(int i = 0; i < kTile * kTile; ++i)
        of_a[i] = static_cast<int8_t>(i * 37), of_b[i] = static_cast<uint8_t>(i * 91);
    for(unsigned i = 0; i < 32; ++i)
        numbers[i] = i * i;
    multiply_bytes<<<1, 32>>>(of_a, of_b, of_d);
    reverse<<<1, 32>>>(numbers);
    CHECK(hipDeviceSynchronize());
    for(int i = 0; i < kTile * kTile; ++i)
    {
        int sum = 0;
        for(int k = 0; k < kTile; ++k)
            sum += of_a[i / kTile * kTile + k] * of_b[k * kTile + i % kTile];
        expect(of_d[i] == sum, "product of bytes", i);
    }
    for(unsigned i = 0; i < 32; ++i)
        expect(numbers[i] == (i ^ 7) * (i ^ 7), "lane", static_cast<int>(i));
    return wrong != 0;
}
