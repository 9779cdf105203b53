/* Attention forward from C, by the stable ABI of qola_c.h. Three sequences of different lengths.
 *
 *   cc -std=c99 -D__HIP_PLATFORM_AMD__=1 -I<bundle>/include attention.c <bundle>/lib/<ns>_libmha_fwd.so -lamdhip64
 */
#include "qola_c.h"

#include <hip/hip_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>

enum { SEQUENCES = 3, HEADS = 8, HDIM = 128, ROWS = 100 + 17 + 300, LONGEST = 300 };

static const int32_t starts[SEQUENCES + 1] = {0, 100, 117, ROWS};

static void check(hipError_t error, const char* what)
{
    if(error != hipSuccess)
    {
        fprintf(stderr, "%s: %s\n", what, hipGetErrorString(error));
        exit(1);
    }
}

static void* memory(size_t bytes)
{
    void* pointer = NULL;
    check(hipMalloc(&pointer, bytes), "hipMalloc");
    return pointer;
}

/* Of [row, head, dim]: one sequence behind the other. */
static qola_tensor tensor(void)
{
    qola_tensor made = {NULL, 0, HDIM, HEADS * HDIM};
    made.data        = memory((size_t)ROWS * HEADS * HDIM * 2);
    return made;
}

int main(void)
{
    void* rows          = memory(sizeof starts);
    qola_mha_args args  = {0};
    qola_found found    = {0};
    hipStream_t stream  = NULL;
    int status          = 0;

    check(hipMemcpy(rows, starts, sizeof starts, hipMemcpyHostToDevice), "hipMemcpy");
    check(hipStreamCreate(&stream), "hipStreamCreate");

    args.struct_size = sizeof args;
    args.dtype       = QOLA_BF16;
    args.group       = 1;
    args.batch       = SEQUENCES;
    args.nhead_q     = HEADS;
    args.nhead_k     = HEADS;
    args.seqlen_q    = ROWS;
    args.seqlen_k    = ROWS;
    args.max_seqlen_q = LONGEST;
    args.hdim_q      = HDIM;
    args.hdim_v      = HDIM;
    args.seqstart_q  = rows;
    args.seqstart_k  = rows;
    args.q           = tensor();
    args.k           = tensor();
    args.v           = tensor();
    args.o           = tensor();
    args.lse.data    = memory(sizeof(float) * ROWS * HEADS);
    args.lse.stride_head = ROWS;

    found.struct_size = sizeof found;
    status            = QOLA_C(mha_fwd_find)(&args, &found);
    if(status == QOLA_OK)
        printf("%u kernel: %s\n", (unsigned)found.stage_count,
               found.stages[0].symbol ? found.stages[0].symbol : found.stages[0].kernel);
    if(status == QOLA_OK && found.workspace_size > 0)
    {
        args.workspace      = memory(found.workspace_size);
        args.workspace_size = found.workspace_size;
    }
    if(status == QOLA_OK)
        status = QOLA_C(mha_fwd)(&args, stream);
    if(status != QOLA_OK)
    {
        fprintf(stderr, "%s: %s\n", QOLA_C(mha_fwd_status_string)(status), QOLA_C(mha_fwd_last_error)());
        return 1;
    }
    check(hipStreamSynchronize(stream), "hipStreamSynchronize");
    printf("%s\n", QOLA_C(mha_fwd_status_string)(status));
    return 0;
}
