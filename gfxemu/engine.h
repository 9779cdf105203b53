// Types of the emulator's engine: numbers, and the records of instructions that encode.py makes.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;

#define BITS(NAME, FROM, TO)                                                                       \
  static inline TO NAME(FROM value) {                                                              \
    union {                                                                                        \
      FROM from;                                                                                   \
      TO to;                                                                                       \
    } both = {value};                                                                              \
    return both.to;                                                                                \
  }
BITS(f32_of, u32, f32)
BITS(of_f32, f32, u32)
BITS(f64_of, u64, f64)
BITS(of_f64, f64, u64)
BITS(f16_of, u16, f16)
BITS(of_f16, f16, u16)

// ---- Records that Python fills -------------------------------------------------------------------

enum { VECTOR32, SCALAR32, CONSTANT, IS_SCC, IS_VCCZ, IS_EXECZ, VECTOR64, SCALAR64, LANE_MASK };

typedef struct {
  i64 kind, reg;
  u64 value, keep, flip;  // keep and flip: the sign
  i64 shift, bits, sign;  // a part of 32 bits; bits = 0: all
} Operand;

enum { NO_RESULT, WHOLE, PAIR, HALF, PART, ONE };

typedef struct Insn {
  i64 handler, op, pc, size, stops;     // stops: the block ends after it
  i64 number, queue;                    // of an access of the LDS, or 0; queue + 1 of any, or 0
  Operand in[4];
  i64 dst, result, mask, exec_too;      // result: one of the enum; mask: first scalar of a mask
  i64 high, keep_other;                 // of HALF; select and unused of PART
  i64 dpp;                              // index + 1
  i64 factor, clamp, kind;              // factor: bits of f64; kind: 'h', 'f' or 'd'
  i64 x[20];
} Insn;

// A function of lanes: operands, result, mask, the instruction, lanes of a wave (32 or 64).
#define VECTOR_PARAMETERS const void *const *p, void *out, u32 *flags, const Insn *insn, int lanes
typedef void VectorOp(VECTOR_PARAMETERS);
typedef u64 ScalarOp(u64 a, u64 b, u64 c, u32 *scc, u64 *exec);

// By number, the functions of operations.h.
#define HIDDEN __attribute__((visibility("hidden")))
extern VectorOp *const qola_vector_ops[] HIDDEN;
extern ScalarOp *const qola_scalar_ops[] HIDDEN;
