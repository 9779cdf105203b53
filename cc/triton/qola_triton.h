/* Kernels in Triton, compiled ahead of time: found by their choices, loaded when they are first launched.
 *
 * The library has the table of its kernels, and `<library>-<arch>.qpack` beside it their code, a file for each arch.
 * Every structure begins with its size: fields that a program does not have are 0. Fields and functions are only ever
 * added, fields at the end. Any thread may call any function. docs/guide/triton.md
 */
#ifndef QOLA_TRITON_H
#define QOLA_TRITON_H

#include <stddef.h>
#include <stdint.h>

/* The namespace of the library, as in its manifest or qola_triton_library; none where it has none. In a bundle, the
 * header beside this one defines it. A source that finds another manifest's qola_config.h calls that one's library:
 * what has no namespace cannot be called from it. */
#if defined(__has_include) && !defined(QOLA_NAMESPACE)
#if __has_include("qola_config.h")
#include "qola_config.h"
#endif
#endif
#ifdef QOLA_NAMESPACE
#define QOLA_TRITON_JOIN_(space, name) qola_##space##_triton_##name
#define QOLA_TRITON_JOIN(space, name) QOLA_TRITON_JOIN_(space, name)
#define QOLA_TRITON(name) QOLA_TRITON_JOIN(QOLA_NAMESPACE, name)
#else
#define QOLA_TRITON(name) qola_triton_##name
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What every function returns, numbers as of qola_c.h; last_error says more of the thread's last call. */
enum qola_triton_status
{
    QOLA_TRITON_OK          = 0,
    QOLA_TRITON_NO_KERNEL   = -1, /* no kernel has these choices */
    QOLA_TRITON_NO_ARCH     = -2, /* none of its code objects is for the current device's arch */
    QOLA_TRITON_FAILED      = -3, /* a call of HIP failed */
    QOLA_TRITON_UNAVAILABLE = -4, /* the arch's pack is not there, is damaged, or is of another build */
    QOLA_TRITON_INVALID     = -6  /* a value is missing, too large, or no multiple of what the kernel counts on */
};

/* A value that a kernel must have, such as HDIM=64: a constant, an option, or what its types name. 0 and 1 stand for
 * False and True. */
struct qola_triton_choice
{
    const char* name;
    const char* value;
};

/* A value by the name of the kernel's parameter: `number` for floating point, else `integer`, of a pointer its
 * address. Those that the kernel does not have are passed over. */
struct qola_triton_argument
{
    const char* name;
    int64_t integer;
    double number;
};

/* A kernel that was found. */
struct qola_triton_found
{
    size_t size; /* of this structure, set by the caller */
    const char* name;
    const char* arch;
    uint32_t threads;
    uint32_t shared;
};

/* Finds the first kernel with these choices for the current device; loads nothing. */
int QOLA_TRITON(find)(const char* kernel,
                      const struct qola_triton_choice* choices,
                      size_t choice_count,
                      struct qola_triton_found* found);

/* The number that a kernel has for a constant, such as BLOCK_M for a grid, by its name in qola_triton_found. */
int QOLA_TRITON(constant)(const char* name, const char* constant, int64_t* value);

/* Finds, loads and launches; grid in workgroups, `stream` a hipStream_t. */
int QOLA_TRITON(launch)(const char* kernel,
                        const struct qola_triton_choice* choices,
                        size_t choice_count,
                        const struct qola_triton_argument* arguments,
                        size_t argument_count,
                        const uint32_t grid[3],
                        void* stream);

/* Attention: q, o [batch, row, head, hdim], k, v [batch, column, head, hdim], by strides in elements. */
struct qola_triton_attention
{
    size_t size; /* of this structure, set by the caller */
    int32_t dtype; /* 1 fp16, 2 bf16: as enum qola_dtype */
    int32_t causal; /* 0 no, 1 from the top left, 2 to the bottom right */
    int32_t hdim;
    int32_t batch;
    int32_t heads;
    int32_t heads_k;
    int32_t rows;    /* of the longest sequence, if there are starts */
    int32_t columns; /* likewise */
    float scale;
    float dropout; /* probability of an element of P to be dropped */
    int64_t seed;
    int32_t offset;
    const int32_t* starts_q; /* null: all sequences have `rows` rows; else strides of batch are not looked at */
    const int32_t* starts_k;
    const void* q;
    const void* k;
    const void* v;
    const void* bias; /* null for none */
    void* o;
    void* lse; /* float */
    int64_t q_batch, q_head, q_row;
    int64_t k_batch, k_head, k_row;
    int64_t v_batch, v_head, v_row;
    int64_t bias_batch, bias_head, bias_row;
    int64_t o_batch, o_head, o_row;
    int64_t lse_batch, lse_head;
    /* Backward alone. */
    const void* d_o;
    void* delta; /* float, strides of lse: memory to work in */
    void* dq;
    void* dk;
    void* dv;
    void* dbias; /* null for none; 0 before */
    int64_t do_batch, do_head, do_row;
    int64_t dq_batch, dq_head, dq_row;
    int64_t dk_batch, dk_head, dk_row;
    int64_t dv_batch, dv_head, dv_row;
    int64_t dbias_batch, dbias_head, dbias_row;
};

/* Launches attention_forward. */
int QOLA_TRITON(attention_forward)(const struct qola_triton_attention* attention, void* stream);

/* Launches attention_backward_delta, _dkdv and _dq. All are found and loaded before the first is launched. */
int QOLA_TRITON(attention_backward)(const struct qola_triton_attention* attention, void* stream);

/* What these would launch, of backward the kernel that does most of it; all are found, and nothing is loaded. Values
 * are checked as at a launch, where one that a kernel does not take means that there is none for it; but tensors that
 * are null may be there later: bias, dbias and starts alone say by it that they are not part of the problem. */
int QOLA_TRITON(attention_forward_find)(const struct qola_triton_attention* attention,
                                        struct qola_triton_found* found);
int QOLA_TRITON(attention_backward_find)(const struct qola_triton_attention* attention,
                                         struct qola_triton_found* found);

/* What was wrong with the thread's last call; empty where nothing was. */
const char* QOLA_TRITON(last_error)(void);

#ifdef __cplusplus
}
#endif

#endif /* QOLA_TRITON_H */
