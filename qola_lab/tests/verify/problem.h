// A row of the table of problems, and what the two halves of the program do with it.
#pragma once

#include <hip/hip_runtime_api.h>

#include <string>

struct Problem
{
    std::string direction, dtype, mode, mask, bias;
    int hdim_q, hdim_v, batch, nhead_q, nhead_k, seqlen_q, seqlen_k, bf16_cvt, min_seqlen_q;
    double dropout, soft_cap;
    bool lse, dbias, store_randval, deterministic, use_ext_asm, v3_api_check, atomic_fp32;
};

// Memory on the device, kept until the program ends. Ends the program where there is none.
void* device_memory(std::size_t bytes);

// Offsets 0, length, 2 * length, ... of `count` sequences, on the device.
const void* sequence_starts(int count, int length);

// Each calls its entry point once, on the stream given, and returns its status.
float run_forward(const Problem& problem, hipStream_t stream);
float run_backward(const Problem& problem, hipStream_t stream);
