/* The C functions of the libraries of a manifest: a stable ABI, without C++ types.
 *
 * A program compiled against this header runs with libraries of the same namespace from every later qola.
 * Each structure begins with its size. A library treats fields that the program lacks as 0, and refuses
 * fields that it does not know. Later versions only add functions, values, and fields at the end of a
 * structure (docs/reference/c-api.md).
 *
 * Each entry point has eight functions. QOLA_C(mha_fwd) is qola_<namespace>_mha_fwd, or qola_mha_fwd without
 * a namespace; the others are <entry>_find, _workspace_size, _prepare, _kernel_count, _kernel_name,
 * _status_string and _last_error. All of them are thread-safe.
 */
#ifndef QOLA_C_H
#define QOLA_C_H

#include <stddef.h>
#include <stdint.h>

/* Generated per manifest: QOLA_NAMESPACE and the entry points of the libraries. */
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

/* Result of every function. <entry>_last_error describes the thread's last failure. */
enum qola_status
{
    QOLA_OK          = 0,
    QOLA_NO_KERNEL   = -1, /* no kernel of the library serves the problem */
    QOLA_NO_ARCH     = -2, /* the library has no code for the current device */
    QOLA_FAILED      = -3, /* a HIP call failed, or the arguments were refused; see standard error */
    QOLA_UNAVAILABLE = -4, /* lazy or split library: the kernel is unavailable; see standard error */
    QOLA_UNSUPPORTED = -5, /* a field is set that this library's AITER does not support, or a stride is too large */
    QOLA_INVALID     = -6  /* a field is missing or contradicts another one */
};

enum qola_dtype /* type of Q, K, V and O */
{
    QOLA_FP16     = 1,
    QOLA_BF16     = 2,
    QOLA_FP32     = 3,
    QOLA_FP8      = 4,
    QOLA_BF8      = 5,
    QOLA_FP8_FP16 = 6, /* Q, K, V in fp8, O in fp16 */
    QOLA_FP8_BF16 = 7,
    QOLA_FP8_FP32 = 8
};

/* A causal mask hides keys after the diagonal that starts in the named corner. A window shows `window_left`
 * keys before the diagonal and `window_right` after it; -1 shows all. */
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
    QOLA_BIAS_ALIBI       = 2  /* `bias` holds float slopes, one per head of Q */
};

enum qola_kernels /* kernels that may serve the problem */
{
    QOLA_KERNELS_ANY = 0,
    QOLA_KERNELS_CK  = 1 /* only Composable Kernel, no assembly (v3) kernels */
};

/* Pairs of dimensions that are rotated together: neighbours, or dimensions rotary_dim / 2 apart. */
enum qola_rope
{
    QOLA_ROPE_NONE        = 0,
    QOLA_ROPE_INTERLEAVED = 1,
    QOLA_ROPE_HALF        = 2
};

enum qola_rounding /* from float to bf16, in assembly kernels for gfx942 */
{
    QOLA_ROUND_DEFAULT      = 0, /* to nearest, ties away from zero */
    QOLA_ROUND_NEAREST_EVEN = 1,
    QOLA_ROUND_NEAREST_AWAY = 2,
    QOLA_ROUND_TO_ZERO      = 3
};

/* A tensor [batch, row, head, dim] in device memory with contiguous dim; strides are in elements. In group
 * mode the sequences are concatenated and stride_batch is 0. Without a size, because it never changes. */
typedef struct qola_tensor
{
    void* data;
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_row;
} qola_tensor;

/* The problem of every entry point. Fields that are 0 or null are not requested. If a field is set that the
 * entry point or this library's AITER does not support, the call returns QOLA_UNSUPPORTED. */
typedef struct qola_mha_args
{
    uint32_t struct_size; /* sizeof(qola_mha_args) */
    int32_t dtype;        /* qola_dtype */
    int32_t mask;         /* qola_mask */
    int32_t bias_type;    /* qola_bias */
    int32_t group;        /* 1: concatenated sequences of different lengths, see seqstart_q, seqstart_k */
    int32_t kernels;      /* qola_kernels */
    int32_t rounding;     /* qola_rounding */
    int32_t deterministic; /* backward: the same bits on every run */

    int64_t batch; /* number of sequences */
    int64_t nhead_q;
    int64_t nhead_k;  /* heads of K and V; divides nhead_q */
    int64_t seqlen_q; /* rows per sequence; with `group`, the sum over all sequences */
    int64_t seqlen_k;
    int64_t max_seqlen_q; /* with `group`: rows of the longest sequence */
    int64_t max_seqlen_k;
    int64_t hdim_q; /* head dimension of Q and K */
    int64_t hdim_v; /* head dimension of V and O */

    int64_t window_left; /* for window masks, otherwise 0 */
    int64_t window_right;
    int64_t sink_size;    /* first tokens of the sequence, which a window always shows */
    int64_t min_seqlen_q; /* forward skips shorter sequences */

    float scale;           /* factor of the scores; 0: 1 / sqrt(hdim_q) */
    float logits_soft_cap; /* forward */
    float dropout;         /* probability of dropping an element, at least 0 and below 1 */
    float scale_p;         /* factor of P for fp8 in some AITERs; 0: 1 */
    float scale_o;
    int32_t quantization; /* fp8: AITER's number of the scaling of Q, K and V; 0: none */

    qola_tensor q;
    qola_tensor k;
    qola_tensor v;
    qola_tensor o;
    qola_tensor lse;     /* float, one value per row, stride_row 0 or 1; the forward writes it if set */
    qola_tensor bias;    /* ALiBi: stride_batch is nhead_q for slopes per sequence, else 0 */
    qola_tensor randval; /* bytes: random numbers of the dropout, written if set */
    qola_tensor d_o;     /* the backward reads d_o and writes the other gradients. dk and dv have nhead_q */
    qola_tensor dq;      /* heads; the caller sums them up if nhead_k is smaller */
    qola_tensor dk;
    qola_tensor dv;
    qola_tensor d_bias;

    uint64_t drop_seed;
    uint64_t drop_offset;
    const void* drop_seed_ptr; /* uint64_t in device memory, instead of the values; set both or none */
    const void* drop_offset_ptr;

    const void* seqstart_q; /* int32_t[batch + 1]: with `group`, the first row of each padded sequence */
    const void* seqstart_k;
    const void* seqlens_q; /* int32_t[batch]: with `group`, rows of each sequence without padding */
    const void* seqlens_k;
    const void* cu_seqlens_q; /* int32_t[batch + 1]: cumulative seqlens_q, instead of seqlens_q. The forward
                               * also takes it without `group` */
    const void* cu_seqlens_k;

    const void* sink; /* float[nhead_q]: scores that the softmax includes */
    void* d_sink;     /* backward: gradient of sink */

    void* workspace; /* device memory in use until the stream has finished the call */
    uint64_t workspace_size;

    int64_t num_splits;      /* split-KV: number of parts of K and V, at least 1 */
    const void* block_table; /* int32_t: page numbers of each sequence */
    int64_t block_table_stride;
    int64_t page_size;
    int32_t gappy; /* seqstart_k holds the start of each sequence in its pages, seqlens_k its length */
    int32_t atomic16; /* backward assembly kernels accumulate dQ in 16 bits; not with `group` */
    const void* cache_batch_idx;

    int64_t num_pages; /* batch prefill */
    void* kv_indptr;
    void* kv_page_indices; /* with 256 trailing zeros, because kernels prefetch entries of the next tile */
    void* kv_last_page_lens;
    int32_t kv_layout; /* AITER's numbers of the memory layout of pages and of their table */
    int32_t kv_lookup;

    qola_tensor q_descale; /* float, per tensor, head or block, see `quantization` */
    qola_tensor k_descale;
    qola_tensor v_descale;
    const void* block_scale_seqstart_q;
    const void* block_scale_seqstart_k;
    int64_t block_scale_size_q;
    int64_t block_scale_size_k;

    /* Append-KV writes new rows after the seqlens_k rows of each sequence in K and V, with or without pages.
     * `rope` rotates them, and Q in place. With a mask, row n of Q has the position of the n-th new row of
     * K; without a mask, all rows have that of the first. */
    qola_tensor k_new;
    qola_tensor v_new;
    int64_t seqlen_new;     /* rows to append to each sequence */
    const void* rotary_cos; /* in Q's type, contiguous [positions, rotary_dim / 2] */
    const void* rotary_sin;
    int32_t rope;       /* qola_rope */
    int32_t rotary_dim; /* number of leading dimensions that are rotated; a multiple of 16 */
} qola_mha_args;

/* A kernel that a call launches. Without a size, because it never changes. The library or HIP owns the texts. */
typedef struct qola_stage
{
    const char* kernel; /* lazy library: the kernel instance, as in <entry>_kernel_name; else null */
    const char* symbol; /* the GPU function, as in profilers; null if the kernel may not be loaded yet */
    int32_t assembly;   /* 1: an assembly (v3) kernel of AITER */
    int32_t reserved;
} qola_stage;

#define QOLA_MAX_STAGES 8

/* Result of <entry>_find. */
typedef struct qola_found
{
    uint32_t struct_size;                /* sizeof(qola_found), set by the caller */
    uint32_t stage_count;                /* number of launched kernels; may exceed QOLA_MAX_STAGES */
    uint64_t workspace_size;             /* required bytes of device memory */
    qola_stage stages[QOLA_MAX_STAGES]; /* in launch order */
} qola_found;

/* <entry>(args, stream): launches the problem on a hipStream_t; null is the default stream.
 * <entry>_find(args, found): finds the kernels of the problem without launching them or reading tensors. It
 *     uses strides, and whether `data` is null. Q, K, V, O and the workspace may be null.
 * <entry>_workspace_size(args, size): computes the bytes of `workspace` that the problem needs.
 * <entry>_prepare(args): loads the kernels of the problem, and compiles missing ones, so that the first call
 *     need not. For a library that is not lazy, it checks that kernels exist.
 * <entry>_kernel_count(), <entry>_kernel_name(n): kernel instances and assembly kernels of the library for
 *     this entry point; null if n is too large.
 * <entry>_status_string(status): describes a status.
 * <entry>_last_error(): describes the thread's last failed call; "" if none failed. */
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
#ifdef QOLA_MHA_FWD_PAGEDKV_PARAMETERS
QOLA_C_ENTRY(mha_fwd_pagedkv)
#endif
#ifdef QOLA_MHA_FWD_APPENDKV_PARAMETERS
QOLA_C_ENTRY(mha_fwd_appendkv)
#endif
#ifdef QOLA_MHA_BWD_PARAMETERS
QOLA_C_ENTRY(mha_bwd)
#endif

#ifdef __cplusplus
}
#endif

#endif /* QOLA_C_H */
