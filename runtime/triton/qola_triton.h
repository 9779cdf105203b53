/* Kernels in Triton, compiled ahead of time, selected by their choices, and loaded at the first launch.
 *
 * The library contains the table of its kernels, and `<library>-<arch>.qpack` next to it their code, one file per arch.
 * Each structure begins with its size; fields that a program lacks are 0. Later versions only add functions, and fields
 * at the end of a structure. All functions are thread-safe. See docs/guide/triton.md.
 */
#ifndef QOLA_TRITON_H
#define QOLA_TRITON_H

#include <stddef.h>
#include <stdint.h>

/* The namespace of the library in its manifest or qola_triton_library. In a bundle, qola_config.h next to this header
 * defines it. A source that includes another manifest's qola_config.h calls that manifest's library; it cannot call a
 * library without a namespace. */
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

/* Result of every function, with the numbers of qola_c.h; last_error describes the thread's last failure. */
enum qola_triton_status
{
    QOLA_TRITON_OK          = 0,
    QOLA_TRITON_NO_KERNEL   = -1, /* no kernel has these choices */
    QOLA_TRITON_NO_ARCH     = -2, /* the kernel has no code object for the current device's arch */
    QOLA_TRITON_FAILED      = -3, /* a HIP call failed */
    QOLA_TRITON_UNAVAILABLE = -4, /* the arch's pack is missing, damaged, or from another build */
    QOLA_TRITON_INVALID     = -6  /* a value is missing, too large, or not a multiple that the kernel requires */
};

/* A choice that selects a kernel, such as HDIM=64: a constant, an option, or a name in its types. 0 and 1 stand for
 * False and True. */
struct qola_triton_choice
{
    const char* name;
    const char* value;
};

/* An argument by the name of the kernel's parameter: `number` for floating point, else `integer`, which also holds
 * pointers. Arguments that the kernel lacks are ignored. */
struct qola_triton_argument
{
    const char* name;
    int64_t integer;
    double number;
};

/* Result of a search for a kernel. */
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

/* Returns the value of a kernel's constant, such as BLOCK_M for the grid, by the name in qola_triton_found. */
int QOLA_TRITON(constant)(const char* name, const char* constant, int64_t* value);

/* Finds, loads and launches a kernel; the grid is in workgroups, `stream` is a hipStream_t. */
int QOLA_TRITON(launch)(const char* kernel,
                        const struct qola_triton_choice* choices,
                        size_t choice_count,
                        const struct qola_triton_argument* arguments,
                        size_t argument_count,
                        const uint32_t grid[3],
                        void* stream);

/* Attention: q, o [batch, row, head, hdim], k, v [batch, column, head, hdim], with strides in elements. */
struct qola_triton_attention
{
    size_t size; /* of this structure, set by the caller */
    int32_t dtype; /* 1 fp16, 2 bf16: as enum qola_dtype */
    int32_t causal; /* 0 no, 1 top-left, 2 bottom-right */
    int32_t hdim;
    int32_t batch;
    int32_t heads;
    int32_t heads_k;
    int32_t rows;    /* per sequence; with starts, of the longest one */
    int32_t columns; /* likewise */
    float scale;
    float dropout; /* probability of an element of P to be dropped */
    int64_t seed;
    int32_t offset;
    const int32_t* starts_q; /* null: all sequences have `rows` rows; else batch strides are ignored */
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
    /* Only the backward. */
    const void* d_o;
    void* delta; /* float, strides of lse: scratch memory */
    void* dq;
    void* dk;
    void* dv;
    void* dbias; /* null for none; must be 0 before the call */
    int64_t do_batch, do_head, do_row;
    int64_t dq_batch, dq_head, dq_row;
    int64_t dk_batch, dk_head, dk_row;
    int64_t dv_batch, dv_head, dv_row;
    int64_t dbias_batch, dbias_head, dbias_row;
};

/* Launches attention_forward. */
int QOLA_TRITON(attention_forward)(const struct qola_triton_attention* attention, void* stream);

/* Launches attention_backward_delta, _dkdv and _dq, after loading all three. */
int QOLA_TRITON(attention_backward)(const struct qola_triton_attention* attention, void* stream);

/* Find the kernel of a launch, of the backward the main one, without loading it. Values are checked like at a launch,
 * and an unsupported value means that no kernel serves the problem. Tensors may be null, except that null bias, dbias
 * and starts are not part of the problem. */
int QOLA_TRITON(attention_forward_find)(const struct qola_triton_attention* attention,
                                        struct qola_triton_found* found);
int QOLA_TRITON(attention_backward_find)(const struct qola_triton_attention* attention,
                                         struct qola_triton_found* found);

/* Returns the error of the thread's last call; empty if it succeeded. */
const char* QOLA_TRITON(last_error)(void);

#ifdef __cplusplus
}
#endif

#endif /* QOLA_TRITON_H */
