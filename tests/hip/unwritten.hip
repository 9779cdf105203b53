// Reads what nothing wrote, as its arguments say; without --checked the emulator does not report it.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void copy(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

__global__ void broadcast(const int* in, int* out) { out[threadIdx.x] = in[7]; }

__global__ void sum(const char* in, int* out) { atomicAdd(out, in[threadIdx.x]); }

__global__ void shared(int* out)
{
    __shared__ int room[64];
    if(threadIdx.x != 5)
        room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x];
}

__global__ void registers(int* out)
{
    int value;
    asm volatile("v_mov_b32 %0, v99" : "=v"(value) : : "v99");
    out[threadIdx.x] = value;
}

int main(int argc, char** argv)
{
    for(int i = 1; i < argc; ++i)
    {
        const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
        int *in = nullptr, *out = nullptr, *managed = nullptr;
        (void)hipMalloc(reinterpret_cast<void**>(&in), 256);
        (void)hipMalloc(reinterpret_cast<void**>(&out), 256);
        (void)hipMallocManaged(reinterpret_cast<void**>(&managed), 256, hipMemAttachGlobal);
        std::memset(managed, 0, 256);
        int host[64] = {};
        if(is("part"))
        {
            // All but the last element.
            (void)hipMemcpy(in, host, 252, hipMemcpyHostToDevice);
            copy<<<1, 64>>>(in, out);
        }
        if(is("copied"))
        {
            // A copy of memory that nothing wrote.
            (void)hipMemcpy(out, in, 256, hipMemcpyDeviceToDevice);
            copy<<<1, 64>>>(out, in);
        }
        if(is("scalar"))
            broadcast<<<1, 64>>>(in, out);
        if(is("atomic"))
            sum<<<1, 64>>>(reinterpret_cast<char*>(managed), out);
        if(is("lds"))
            shared<<<1, 64>>>(out);
        if(is("register"))
            registers<<<1, 64>>>(out);
        if(is("written"))
        {
            (void)hipMemsetAsync(in, -1, 256, nullptr);
            copy<<<1, 64>>>(in, out);
            copy<<<1, 64>>>(out, managed);
            sum<<<1, 64>>>(reinterpret_cast<char*>(managed), out);
            broadcast<<<1, 64>>>(out, in);
        }
        const hipError_t error = hipDeviceSynchronize();
        std::printf("%s: %s\n", argv[i], hipGetErrorName(error));
        (void)hipDeviceReset();
        (void)hipFree(in);
        (void)hipFree(out);
        (void)hipFree(managed);
    }
    return 0;
}
