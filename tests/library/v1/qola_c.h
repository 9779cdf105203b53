/* The C functions of the libraries of a manifest: a stable ABI, without C++ types.
 *
 * A program compiled against this header runs with each later one's libraries of the same namespace.
 * Every structure begins with its size: fields that a program does not have are 0, and a library that is
 * older than the program refuses what it does not know. Fields, values and functions are only ever added,
 * fields at the end of their structure (docs/reference/c-api.md).
 *
 * Each entry point has eight functions, of which the first is named after it: QOLA_C(mha_fwd) is
 * qola_<namespace>_mha_fwd, qola_mha_fwd without a namespace. Beside it are <entry>_find, _workspace_size,
 * _prepare, _kernel_count, _kernel_name, _status_string and _last_error. Any thread may call any of them.
 */
#ifndef QOLA_C_H
#define QOLA_C_H

#include <stddef.h>
#include <stdint.h>

/* Generated per manifest: QOLA_NAMESPACE, and which entry points the libraries have. */
#include "qola_config.h"

#ifdef QOLA_NAMESPACE
#define QOLA_C_JOIN_(space, name) qola_##space##_##name
#define QOLA_C_JOIN(space, name) QOLA_C_JOIN_(space, name)
#define QOLA_C(name) QOLA_C_JOIN(QOLA_NAMESPACE, name)
#else
#define QOLA_C(name) qola_##name
#endif

#if defined(__GNUC__)
#define QOLA_C_API __attribute__((visibility("default")))
#else
#define QOLA_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What every function returns. <entry>_last_error says more of the thread's last call. */
enum qola_status
{
    QOLA_OK          = 0,
    QOLA_NO_KERNEL   = -1, /* no kernel of the library serves the problem */
    QOLA_NO_ARCH     = -2, /* the library has no code for the current device */
    QOLA_FAILED      = -3, /* a call of HIP failed, or the arguments were refused: standard error says which */
    QOLA_UNAVAILABLE = -4, /* of a lazy library: the kernel is not at hand, standard error says why */
    QOLA_UNSUPPORTED = -5, /* a field is set that this library's AITER does not have */
    QOLA_INVALID     = -6  /* a field is missing or contradicts another one */
};

enum qola_dtype /* of Q, K, V and O */
{
    QOLA_FP16     = 1,
    QOLA_BF16     = 2,
    QOLA_FP32     = 3,
    QOLA_FP8      = 4,
    QOLA_BF8      = 5,
    QOLA_FP8_FP16 = 6, /* fp8, and O of fp16 */
    QOLA_FP8_BF16 = 7,
    QOLA_FP8_FP32 = 8
};

/* A causal mask hides what is above the diagonal that begins in a corner. A window shows from `window_left`
 * before it to `window_right` behind it; -1 is all. */
enum qola_mask
{
    QOLA_MASK_NONE                = 0,
    QOLA_MASK_CAUSAL_TOP_LEFT     = 1,
    QOLA_MASK_CAUSAL_BOTTOM_RIGHT = 2,
    QOLA_MASK_WINDOW_BOTTOM_RIGHT = 3,
    QOLA_MASK_WINDOW_TOP_LEFT     = 4
};

enum qola_bias
{
    QOLA_BIAS_NONE        = 0,
    QOLA_BIAS_ELEMENTWISE = 1, /* `bias` is added to the scores */
    QOLA_BIAS_ALIBI       = 2  /* `bias` has a float for each head of Q, its slope */
};

enum qola_kernels /* what may serve */
{
    QOLA_KERNELS_ANY = 0,
    QOLA_KERNELS_CK  = 1 /* Composable Kernel's alone, no assembly (v3) kernels */
};

enum qola_rounding /* of assembly kernels on gfx942, from float to bf16 */
{
    QOLA_ROUND_DEFAULT      = 0, /* to nearest, ties away from zero */
    QOLA_ROUND_NEAREST_EVEN = 1,
    QOLA_ROUND_NEAREST_AWAY = 2,
    QOLA_ROUND_TO_ZERO      = 3
};

/* A tensor of [batch, row, head, dim] in device memory, dim without gaps; strides in elements. In group mode
 * the sequences lie behind each other and stride_batch is 0. Never changed: it has no size. */
typedef struct qola_tensor
{
    void* data;
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_row;
} qola_tensor;

/* A problem, for each of the entry points. What is 0 or null is not asked for. A field that is set and that
 * the entry point, or this library's AITER, does not have is QOLA_UNSUPPORTED, never passed over. */
typedef struct qola_mha_args
{
    uint32_t struct_size; /* sizeof(qola_mha_args) */
    int32_t dtype;        /* qola_dtype */
    int32_t mask;         /* qola_mask */
    int32_t bias_type;    /* qola_bias */
    int32_t group;        /* 1: sequences of different lengths, seqstart_q and seqstart_k tell where they begin */
    int32_t kernels;      /* qola_kernels */
    int32_t rounding;     /* qola_rounding */
    int32_t deterministic; /* backward: the same bits on every run */

    int64_t batch; /* sequences */
    int64_t nhead_q;
    int64_t nhead_k;  /* of K and V; divides nhead_q */
    int64_t seqlen_q; /* rows of a sequence; with `group`, of all sequences together */
    int64_t seqlen_k;
    int64_t max_seqlen_q; /* with `group`: rows of the longest sequence */
    int64_t max_seqlen_k;
    int64_t hdim_q; /* of Q and K */
    int64_t hdim_v; /* of V and O */

    int64_t window_left; /* of masks that are windows; of others 0 */
    int64_t window_right;
    int64_t sink_size;    /* tokens at the beginning that a window always shows */
    int64_t min_seqlen_q; /* forward skips shorter sequences */

    float scale;           /* of the scores; 0: 1 / sqrt(hdim_q) */
    float logits_soft_cap; /* forward */
    float dropout;         /* probability to drop, at least 0 and below 1 */
    float scale_p;         /* of fp8 in some AITERs; 0: 1 */
    float scale_o;
    int32_t quantization; /* of fp8: AITER's number for how Q, K and V are scaled; 0: not */

    qola_tensor q;
    qola_tensor k;
    qola_tensor v;
    qola_tensor o;
    qola_tensor lse;     /* float; a value for each row, stride_row 0 or 1. Forward writes it where it is set */
    qola_tensor bias;    /* ALiBi: stride_batch nhead_q where each sequence has its slopes, else 0 */
    qola_tensor randval; /* bytes: dropout's random numbers, written where it is set */
    qola_tensor d_o;     /* backward reads it, and writes the others; dk and dv have nhead_q heads, which */
    qola_tensor dq;      /* the caller sums up where nhead_k is less */
    qola_tensor dk;
    qola_tensor dv;
    qola_tensor d_bias;

    uint64_t drop_seed;
    uint64_t drop_offset;
    const void* drop_seed_ptr; /* uint64_t in device memory, in place of the values; both or none */
    const void* drop_offset_ptr;

    const void* seqstart_q; /* int32_t[batch + 1]: with `group`, first row of each sequence, with padding */
    const void* seqstart_k;
    const void* seqlens_q; /* int32_t[batch]: rows of each sequence without padding */
    const void* seqlens_k;
    const void* cu_seqlens_q; /* int32_t[batch + 1]: the same summed up; in place of seqlens_q */
    const void* cu_seqlens_k;

    const void* sink; /* float for each head of Q, a score that takes part in the softmax */
    void* d_sink;     /* backward: its gradient */

    void* workspace; /* device memory that the call may use until the stream has done it */
    uint64_t workspace_size;

    int64_t num_splits;      /* split-KV: parts of K and V, at least 1 */
    const void* block_table; /* int32_t: pages of each sequence */
    int64_t block_table_stride;
    int64_t page_size;
    int32_t gappy; /* seqstart_k has where sequences begin in their pages, seqlens_k how long they are */
    int32_t atomic16; /* backward assembly kernels sum dQ up in 16 bits; not with `group` */
    const void* cache_batch_idx;

    int64_t num_pages; /* batch prefill */
    void* kv_indptr;
    void* kv_page_indices;
    void* kv_last_page_lens;
    int32_t kv_layout; /* AITER's numbers for how pages and their table lie in memory */
    int32_t kv_lookup;

    qola_tensor q_descale; /* float; of a tensor, of its heads or of blocks, see `quantization` */
    qola_tensor k_descale;
    qola_tensor v_descale;
    const void* block_scale_seqstart_q;
    const void* block_scale_seqstart_k;
    int64_t block_scale_size_q;
    int64_t block_scale_size_k;
} qola_mha_args;

/* A kernel that a call launches. Never changed. Texts belong to the library or to HIP. */
typedef struct qola_stage
{
    const char* kernel; /* of a lazy library, the kernel instance as <entry>_kernel_name has it; else null */
    const char* symbol; /* the GPU function, as profilers show it; null of a kernel that may not be loaded yet */
    int32_t assembly;   /* 1: one of AITER's assembly (v3) kernels */
    int32_t reserved;
} qola_stage;

#define QOLA_MAX_STAGES 8

/* What a call would do. */
typedef struct qola_found
{
    uint32_t struct_size;                /* sizeof(qola_found), set by the caller */
    uint32_t stage_count;                /* kernels that are launched; may exceed QOLA_MAX_STAGES */
    uint64_t workspace_size;             /* bytes of device memory it needs */
    qola_stage stages[QOLA_MAX_STAGES]; /* in order */
} qola_found;

/* <entry>(args, stream): launches the problem on a hipStream_t; null is the default stream.
 * <entry>_find(args, found): what that would launch. Nothing is launched, and no tensor is read: of each,
 *     only whether `data` is null counts, and Q, K, V, O and the workspace need not be set.
 * <entry>_workspace_size(args, size): bytes of `workspace` that the problem needs.
 * <entry>_prepare(args): loads the kernels of the problem, and compiles those that are not at hand: so its
 *     first call does not. Of a library that is not lazy: asks whether there are any.
 * <entry>_kernel_count(), <entry>_kernel_name(n): kernel instances and assembly kernels of the library for
 *     this entry point; null where there is no n-th.
 * <entry>_status_string(status): what a status means.
 * <entry>_last_error(): what was wrong with the thread's last call that failed; "" before. */
#define QOLA_C_ENTRY(entry)                                                                    \
    QOLA_C_API int QOLA_C(entry)(const qola_mha_args* args, void* stream);                     \
    QOLA_C_API int QOLA_C(entry##_find)(const qola_mha_args* args, qola_found* found);         \
    QOLA_C_API int QOLA_C(entry##_workspace_size)(const qola_mha_args* args, uint64_t* size);  \
    QOLA_C_API int QOLA_C(entry##_prepare)(const qola_mha_args* args);                         \
    QOLA_C_API size_t QOLA_C(entry##_kernel_count)(void);                                      \
    QOLA_C_API const char* QOLA_C(entry##_kernel_name)(size_t number);                         \
    QOLA_C_API const char* QOLA_C(entry##_status_string)(int status);                          \
    QOLA_C_API const char* QOLA_C(entry##_last_error)(void);

#ifdef QOLA_MHA_FWD_PARAMETERS
QOLA_C_ENTRY(mha_fwd)
#endif
#ifdef QOLA_MHA_FWD_SPLITKV_PARAMETERS
QOLA_C_ENTRY(mha_fwd_splitkv)
#endif
#ifdef QOLA_MHA_BATCH_PREFILL_PARAMETERS
QOLA_C_ENTRY(mha_batch_prefill)
#endif
#ifdef QOLA_MHA_BWD_PARAMETERS
QOLA_C_ENTRY(mha_bwd)
#endif

#ifdef __cplusplus
}
#endif

#endif /* QOLA_C_H */
