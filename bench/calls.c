/* calls LIBRARY ENTRY HDIM MASK CALLS: measures loading and calling a library; prints a JSON object.
 *
 * Compiled once per namespace, against qola_c.h of its bundle, for bench/calls.py. bf16, one sequence of 128 rows.
 */
#define _GNU_SOURCE
#include "qola_c.h"

#include <hip/hip_runtime_api.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME_(space) #space
#define NAME(space) NAME_(space)

enum { HEADS = 8, ROWS = 128 };

typedef int (*entry_point)(const qola_mha_args*, void*);

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Resident bytes of the process, including mapped files. */
static long resident(void)
{
    long size = 0, pages = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if(!file || fscanf(file, "%ld %ld", &size, &pages) != 2)
        exit(2);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void* memory(size_t bytes)
{
    void* pointer = NULL;
    if(hipMalloc(&pointer, bytes) != hipSuccess)
        exit(2);
    return pointer;
}

static qola_tensor tensor(int dim)
{
    qola_tensor result = {memory((size_t)ROWS * HEADS * dim * 4), (int64_t)ROWS * HEADS * dim, dim, (int64_t)HEADS * dim};
    return result;
}

static qola_mha_args problem(int dim, int mask)
{
    qola_mha_args args = {0};
    args.struct_size   = sizeof args;
    args.dtype         = QOLA_BF16;
    args.mask          = mask;
    args.kernels       = QOLA_KERNELS_CK;
    args.batch         = 1;
    args.nhead_q = args.nhead_k = HEADS;
    args.seqlen_q = args.seqlen_k = ROWS;
    args.hdim_q = args.hdim_v = dim;
    args.q = tensor(dim), args.k = tensor(dim), args.v = tensor(dim), args.o = tensor(dim);
    args.lse.data         = memory(sizeof(float) * ROWS * HEADS);
    args.lse.stride_head  = ROWS;
    args.lse.stride_batch = (int64_t)ROWS * HEADS;
    return args;
}

int main(int argc, char** argv)
{
    if(argc != 6)
        return 2;
    const int backward = strcmp(argv[2], "mha_bwd") == 0, dim = atoi(argv[3]);
    const long calls = atol(argv[5]);
    int status, devices;
    if(hipGetDeviceCount(&devices) != hipSuccess)
        return 2;

    const long before  = resident();
    const double start = seconds();
    void* library      = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const double open  = seconds() - start;
    const long after   = resident();
    if(!library)
    {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    char name[256];
    snprintf(name, sizeof name, "qola_%s_%s", NAME(QOLA_NAMESPACE), argv[2]);
    const entry_point call = (entry_point)dlsym(library, name);
    if(!call)
        return 1;

    qola_mha_args args = problem(dim, atoi(argv[4]));
    if(backward)
        args.d_o = tensor(dim), args.dq = tensor(dim), args.dk = tensor(dim), args.dv = tensor(dim);
    /* Large enough for every kernel: a query would load the kernels before the measurement. */
    args.workspace_size = 1 << 26;
    args.workspace      = memory(args.workspace_size);

    const double called = seconds();
    status              = call(&args, NULL);
    const double first  = seconds() - called;
    if(status != QOLA_OK)
    {
        fprintf(stderr, "%s: status %d\n", name, status);
        return 1;
    }
    const double loop = seconds();
    for(long n = 0; n < calls && status == QOLA_OK; ++n)
        status = call(&args, NULL);
    const double each = (seconds() - loop) / (double)calls;
    printf("{\"dlopen_seconds\": %.9f, \"resident_bytes\": %ld, \"first_call_seconds\": %.9f, \"call_seconds\": %.12f}\n",
           open, after - before, first, each);
    return status != QOLA_OK;
}
