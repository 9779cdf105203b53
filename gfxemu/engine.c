// Runs waves of a kernel as gfxemu/schedule.py does, in C: the same order, results and faults.
//
// An instruction is a record that gfxemu/encode.py makes; `handler` says how it runs,
// and `op` is a function of operations.h, which is generated from the table of operations. Waves at
// one place run together. Instructions that only touch registers run wave by wave, since no other
// wave sees them; each access of memory runs for all waves before the next instruction does.
//
// It is compiled for waves of 64 lanes (CDNA) and, with -DLANES=32, for those of 32 (RDNA).

#include <immintrin.h>
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

#ifndef LANES
#define LANES 64
#endif
enum { VCC = 106, M0 = 124, EXEC = 126 };
// A mask with all lanes.
#define ALL (~(u64)0 >> (64 - LANES))
#define QOLA_CONSTANTS
#include "operations.h"
#undef QOLA_CONSTANTS
#define ALIGNED __attribute__((aligned(64)))

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

typedef struct {
  u8 source[LANES];
  u64 valid, enabled, zeros, inactive;  // inactive: whether lanes that are off are read
} Dpp;

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

typedef struct {
  i64 kind, insn, value, size, group, number, lane;
} Fault;

// Accesses of a wave by queue, as gfxemu/races.py has them: issued, done, done at the last
// barrier, and the last mark with the granules of marks that nobody else may touch.
typedef struct {
  i64 issued[2], done[2], synced[2], marked[2], low[2], high[2];
} Order;

// Granules that a load to the LDS wrote.
typedef struct {
  i64 number, low, high;
} Span;

enum { VM, LDS, MOST_VM = 63, MOST_LDS = 15, MOST_WAVES = 16, SPANS = MOST_VM + 1 };

typedef struct {
  u32 *v, *s;
  Order *order;  // or 0
  Span *spans;   // of the last loads to the LDS, by number modulo SPANS
  i64 group, number, state;  // state: of outstanding loads
  u64 lds, exec;
  u32 scc;
  u32 active[LANES] ALIGNED;
} Wave;

typedef struct {
  i64 count, registers, groups, group_waves;
  u32 *v, *s;
  u8 *scc;
  i64 *wave_groups, *wave_numbers, *live;
  const Insn *insns;
  const i64 *places;  // by pc / 4, index of the instruction or -1
  i64 code_size, insn_count;
  const Dpp *dpp;
  const f32 *formats;  // 2 x 256 values of FP8 and BF8
  u64 lds_start;
  i64 lds_row, lds_bytes;
  u64 scratch_start;
  i64 scratch_row;
  const u64 *starts, *ends;
  i64 allocations;
  u64 entry;
  i64 start;  // pc of the first instruction: code in front of it has a lower one
  i64 strict, limit, executed;
  i64 (*fallback)(i64 insn, i64 count, const i32 *rows);
  // gfxemu/waits.py: states of waves by state and block, -1 for those that `pass` computes.
  const i32 *passages;
  i64 states, blocks;
  const i32 *block_of;  // by the first instruction; or -1
  i64 (*pass)(i64 insn, i64 state, i64 row);
  // gfxemu/races.py: a mark for each granule of the LDS, and accesses of waves
  u64 *owners;
  Order *orders;
  i64 granules, shift;
  // Results
  i64 status, status_insn, fault_count, fault_room;
  Fault *faults;
} Launch;

enum { DONE, OUTSIDE, UNSUPPORTED, ENDLESS, AT_BARRIER, STRICT, FAILED, SWIZZLED, NO_MEMORY };
enum { UNMAPPED = 1, LDS_RANGE, SCRATCH_RANGE, CROOKED, CROOKED_LDS, LOADED_RANGE, RACE, NOT_LOADED };

typedef struct {
  Launch *l;
  Wave *waves;
  u16 *seen;
  u64 low, high;  // the allocation that was found last
  int stop;
} Ctx;

typedef struct {
  i64 pc;
  int n;
  i32 *rows;
} Part;

// ---- Registers -------------------------------------------------------------------------------------

static inline u64 pair_of(const Wave *w, i64 reg) { return w->s[reg] | (u64)w->s[reg + 1] << 32; }

static inline void set_pair(Wave *w, i64 reg, u64 value) {
  w->s[reg] = (u32)value;
  w->s[reg + 1] = (u32)(value >> 32);
}

// A bit for each lane: two scalar registers for 64 lanes, one for 32.
static inline u64 mask_of(const Wave *w, i64 reg) { return LANES == 64 ? pair_of(w, reg) : w->s[reg]; }

static inline void set_mask(Wave *w, i64 reg, u64 value) {
  if (LANES == 64) set_pair(w, reg, value);
  else w->s[reg] = (u32)value;
}

static void expand(u64 mask, u32 *out) {
#ifdef __AVX512F__
  for (int at = 0; at < LANES; at += 16)
    _mm512_store_si512(out + at, _mm512_maskz_set1_epi32((__mmask16)(mask >> at), -1));
#else
  for (int l = 0; l < LANES; l++) out[l] = -(u32)(mask >> l & 1);
#endif
}

static u64 packed(const u32 *flags) {
  u64 mask = 0;
#ifdef __AVX512F__
  for (int at = 0; at < LANES; at += 16) {
    __m512i part = _mm512_loadu_si512(flags + at);
    mask |= (u64)_mm512_test_epi32_mask(part, part) << at;
  }
#else
  for (int l = 0; l < LANES; l++) mask |= (u64)(flags[l] != 0) << l;
#endif
  return mask;
}

static void update_exec(Wave *w) {
  u64 exec = mask_of(w, EXEC);
  if (exec == w->exec) return;
  w->exec = exec;
  expand(exec, w->active);
}

static inline u64 selected(u64 value, const Operand *o) {
  if (o->bits) {
    u32 moved = (u32)value >> o->shift << (32 - o->bits);
    value = o->sign ? (u32)((i32)moved >> (32 - o->bits)) : moved >> (32 - o->bits);
  }
  return (value & o->keep) ^ o->flip;
}

static u64 scalar_value(const Wave *w, const Operand *o) {
  u64 value = 0;
  switch (o->kind) {
    case SCALAR32: value = w->s[o->reg]; break;
    case SCALAR64: value = pair_of(w, o->reg); break;
    case CONSTANT: value = o->value; break;
    case IS_SCC: value = w->scc; break;
    case IS_VCCZ: value = mask_of(w, VCC) == 0; break;
    case IS_EXECZ: value = mask_of(w, EXEC) == 0; break;
  }
  return value;
}

// An operand as a number of 32 bits for each lane, or of 64.
static const void *fetch(const Wave *w, const Operand *o, int wide, u64 *room) {
  u32 *narrow = (u32 *)room;
  if (o->kind == VECTOR32) {
    const u32 *from = w->v + o->reg * LANES;
    if (!o->bits && o->keep == ~(u64)0 && !o->flip) return from;
    u32 keep = (u32)o->keep, flip = (u32)o->flip;
    if (!o->bits) {
      for (int l = 0; l < LANES; l++) narrow[l] = (from[l] & keep) ^ flip;
    } else {
      int shift = (int)o->shift, rest = 32 - (int)o->bits;
      if (o->sign)
        for (int l = 0; l < LANES; l++)
          narrow[l] = ((u32)((i32)(from[l] >> shift << rest) >> rest) & keep) ^ flip;
      else
        for (int l = 0; l < LANES; l++) narrow[l] = ((from[l] >> shift << rest >> rest) & keep) ^ flip;
    }
    return narrow;
  }
  if (o->kind == VECTOR64) {
    const u32 *low = w->v + o->reg * LANES, *high = low + LANES;
    u64 keep = o->keep, flip = o->flip;
    for (int l = 0; l < LANES; l++) room[l] = ((low[l] | (u64)high[l] << 32) & keep) ^ flip;
    return room;
  }
  if (o->kind == LANE_MASK) {
    expand(mask_of(w, o->reg), narrow);
    return narrow;
  }
  u64 value = selected(scalar_value(w, o), o);
  if (wide)
    for (int l = 0; l < LANES; l++) room[l] = value;
  else
    for (int l = 0; l < LANES; l++) narrow[l] = (u32)value;
  return room;
}

static inline void put(Wave *w, i64 reg, const u32 *from, u64 exec, const u32 *active) {
  u32 *to = w->v + reg * LANES;
  if (exec == ALL) {
    memcpy(to, from, 4 * LANES);
  } else {
    for (int l = 0; l < LANES; l++) to[l] = (from[l] & active[l]) | (to[l] & ~active[l]);
  }
}

// ---- Arithmetic that operations.h uses -------------------------------------------------------------

static inline f32 fmax_f32(f32 a, f32 b) { return b != b ? a : a > b ? a : b; }
static inline f32 fmin_f32(f32 a, f32 b) { return b != b ? a : a < b ? a : b; }
static inline f64 fmax_f64(f64 a, f64 b) { return b != b ? a : a > b ? a : b; }
static inline f64 fmin_f64(f64 a, f64 b) { return b != b ? a : a < b ? a : b; }
static inline f32 maximum_f32(f32 a, f32 b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static inline f32 minimum_f32(f32 a, f32 b) { return a != a ? a : b != b ? b : a < b ? a : b; }
static inline f64 maximum_f64(f64 a, f64 b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static inline f64 minimum_f64(f64 a, f64 b) { return a != a ? a : b != b ? b : a < b ? a : b; }
static inline f16 fmax_f16(f16 a, f16 b) { return (f32)a >= (f32)b || b != b ? a : b; }
static inline f16 fmin_f16(f16 a, f16 b) { return (f32)a <= (f32)b || b != b ? a : b; }
static inline f16 maximum_f16(f16 a, f16 b) { return (f32)a >= (f32)b || a != a ? a : b; }
static inline f16 minimum_f16(f16 a, f16 b) { return (f32)a <= (f32)b || a != a ? a : b; }
static inline f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
static inline f64 fma_f64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
static inline f16 fma_f16(f16 a, f16 b, f16 c) {
  // From f64, as an f32 in between would round twice.
  f64 sum = (f64)(f32)a * (f64)(f32)b + (f64)(f32)c;
  f32 near = (f32)sum;
  // Round to odd: what is left behind shows in the lowest bit.
  u32 bits = of_f32(near);
  f64 back = (f64)near;
  int away = (back > sum) == (sum > 0) && back != sum;
  int inexact = back != sum && sum == sum && bits << 1 != 0xFF000000;
  bits = away && inexact ? bits - 1 : bits;
  bits |= (u32)inexact;
  return (f16)f32_of(bits);
}
#define median(a, b, c, min, max) max(min(a, b), min(max(a, b), c))
static inline u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
static inline u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
static inline i32 min_i32(i32 a, i32 b) { return a < b ? a : b; }
static inline i32 max_i32(i32 a, i32 b) { return a > b ? a : b; }
static inline f32 median_f32(f32 a, f32 b, f32 c) {
  f32 low = minimum_f32(a, b), high = maximum_f32(a, b);
  f32 middle = maximum_f32(low, minimum_f32(high, c));
  return a != a || b != b || c != c ? fmin_f32(fmin_f32(a, b), c) : middle;
}
static inline f16 median_f16(f16 a, f16 b, f16 c) {
  f16 low = minimum_f16(a, b), high = maximum_f16(a, b);
  f16 middle = maximum_f16(low, minimum_f16(high, c));
  return a != a || b != b || c != c ? fmin_f16(fmin_f16(a, b), c) : middle;
}
static inline u32 bf16_bits(f32 value) {
  u32 bits = of_f32(value);
  u32 rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return (value != value ? bits >> 16 | 0x40 : rounded) & 0xFFFF;
}
static inline f32 from_bf16(u32 bits) { return f32_of(bits << 16); }
static inline u32 f16_toward_zero(f32 value) {
  f16 near = (f16)value;
  f32 back = (f32)near;
  u32 over = f32_of(of_f32(back) & 0x7FFFFFFF) > f32_of(of_f32(value) & 0x7FFFFFFF);
  return (u16)(of_f16(near) - over);
}
static inline u32 ones32(u32 value) {
  value = value - (value >> 1 & 0x55555555);
  value = (value & 0x33333333) + (value >> 2 & 0x33333333);
  return ((value + (value >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}
static inline u32 first_one(u64 value) { return value ? (u32)__builtin_ctzll(value) : 0xFFFFFFFF; }
static inline u32 leading(u64 value, int width) {
  return value ? (u32)(__builtin_clzll(value) - (64 - width)) : 0xFFFFFFFF;
}
static inline u64 reversed(u64 value, int width) {
  u64 result = 0;
  for (int bit = 0; bit < width; bit++) result |= (value >> bit & 1) << (width - 1 - bit);
  return result;
}
static inline i64 saturated(f64 value, f64 low, f64 high) {
  value = value != value ? 0 : value;
  value = value < low ? low : value > high ? high : value;
  return (i64)value;
}
// Bits from an offset on, moved to the upper end and back.
static inline u64 extract_u(u64 value, u32 offset, u32 width, u32 bits) {
  u32 distance = 64 - (width < bits ? width : bits);
  u64 moved = value >> (offset & (bits - 1));
  return distance == 64 ? 0 : moved << (distance & 63) >> (distance & 63);
}
static inline i64 extract_i(i64 value, u32 offset, u32 width, u32 bits) {
  u32 distance = 64 - (width < bits ? width : bits);
  i64 moved = value >> (offset & (bits - 1));
  return distance == 64 ? 0 : (i64)((u64)moved << (distance & 63)) >> (distance & 63);
}
static inline u32 perm(u32 high, u32 low, u32 select) {
  u64 wide = (u64)high << 32 | low;
  u32 result = 0;
  for (int place = 0; place < 32; place += 8) {
    u32 which = select >> place & 0xFF;
    u64 octet = wide >> (min_u32(which, 7) << 3) & 0xFF;
    u64 sign = wide >> min_u32((which & 3) * 16 + 15, 63) & 1;
    octet = which > 7 ? sign * 0xFF : octet;
    octet = which == 12 ? 0 : which > 12 ? 0xFF : octet;
    result |= (u32)octet << place;
  }
  return result;
}
static inline u32 bitop3(u32 a, u32 b, u32 c, u64 table) {
  u32 result = 0;
  for (int n = 0; n < 8; n++) {
    u32 term = (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
    result |= term & -(u32)(table >> n & 1);
  }
  return result;
}
// 2 to a power; gfxemu/numbers.py has the same steps.
static inline f32 power_of_2(f32 value) {
  f64 x = value, large = 6755399441055744.0;
  x = x > 200 ? 200 : x;
  x = x < -200 ? -200 : x;
  f64 moved = x + large;
  f64 r = x - (moved - large);
  f64 p = EXP2_11;
  p = p * r + EXP2_10;
  p = p * r + EXP2_9;
  p = p * r + EXP2_8;
  p = p * r + EXP2_7;
  p = p * r + EXP2_6;
  p = p * r + EXP2_5;
  p = p * r + EXP2_4;
  p = p * r + EXP2_3;
  p = p * r + EXP2_2;
  p = p * r + EXP2_1;
  p = p * r + 1.0;
  return (f32)(p * f64_of((of_f64(moved) + 1023) << 52));
}
static inline f32 log_of_2(f32 value) {
  u64 bits = of_f64((f64)value);
  u64 up = (bits & 0xFFFFFFFFFFFFF) > 0x6A09E667F3BCC;
  f64 exponent = (f64)((i64)(bits >> 52) - 1023 + (i64)up);
  f64 m = f64_of((bits & 0xFFFFFFFFFFFFF) | (1023 - up) << 52);
  f64 s = (m - 1.0) / (m + 1.0), z = s * s;
  f64 p = LOG2_19;
  p = p * z + LOG2_17;
  p = p * z + LOG2_15;
  p = p * z + LOG2_13;
  p = p * z + LOG2_11;
  p = p * z + LOG2_9;
  p = p * z + LOG2_7;
  p = p * z + LOG2_5;
  p = p * z + LOG2_3;
  p = p * z + LOG2_1;
  f32 result = (f32)(p * s + exponent);
  result = value == 0 ? -__builtin_inff() : result;
  result = value == __builtin_inff() ? value : result;
  return value < 0 || value != value ? __builtin_nanf("") : result;
}
static inline f32 scaled_f32(f32 value, i32 exponent) {
  i64 clipped = exponent > 400 ? 400 : exponent < -400 ? -400 : exponent;
  return (f32)((f64)value * f64_of((u64)(clipped + 1023) << 52));
}
static inline f32 root(f32 value) { return __builtin_sqrtf(value); }
static inline f64 root_f64(f64 value) { return __builtin_sqrt(value); }
#define CLASS(F, U, MANTISSA, WIDTH)                                                               \
  static inline int class_##F(F value, u32 wanted) {                                               \
    U bits = of_##F(value), negative = bits >> (MANTISSA + WIDTH) & 1;                             \
    U infinite = (U)((1 << WIDTH) - 1) << MANTISSA, least = (U)1 << MANTISSA;                      \
    U size = bits & (infinite | (least - 1));                                                      \
    u32 number = size > infinite    ? (u32)(bits >> (MANTISSA - 1) & 1)                            \
                 : size == infinite ? (negative ? 2 : 9)                                           \
                 : size >= least    ? (negative ? 3 : 8)                                           \
                 : size             ? (negative ? 4 : 7)                                           \
                                    : (negative ? 5 : 6);                                          \
    return wanted >> number & 1;                                                                   \
  }
CLASS(f16, u16, 10, 5)
CLASS(f32, u32, 23, 8)
CLASS(f64, u64, 52, 11)
// Mantissa of 0.5 to 1 and exponent; an infinity or NaN is its own mantissa.
static inline f64 mantissa_of(f64 value) {
  int exponent;
  return __builtin_isfinite(value) ? __builtin_frexp(value, &exponent) : value;
}
static inline i32 power_of(f64 value) {
  int exponent = 0;
  if (__builtin_isfinite(value)) __builtin_frexp(value, &exponent);
  return exponent;
}
// Of an angle in revolutions, reduced exactly.
static inline f32 sine(f32 turns) {
  return (f32)__builtin_sin(((f64)turns - __builtin_rint((f64)turns)) * 6.283185307179586);
}
static inline f32 cosine(f32 turns) {
  return (f32)__builtin_cos(((f64)turns - __builtin_rint((f64)turns)) * 6.283185307179586);
}
// Floats of 8 bits: E4M3 with 3 bits of mantissa, E5M2 with 2. FNUZ has exponents lower by one, no
// infinity, and a single NaN: the bits of a negative zero. OCP's E4M3 has no infinity either.
// Values that are too large become infinity, or NaN in formats without infinity.
static inline f64 power_of_bias(u32 mantissa, u64 fnuz) {
  u64 bias = (1u << (6 - mantissa)) - 1 + fnuz;
  return f64_of((1023 + 127 - bias) << 52);
}
static inline f32 from_float8(u32 code, u32 mantissa, u64 fnuz) {
  u32 size = code & 0x7F, infinite = mantissa == 2 ? 0x7C : 0x7F;
  f32 value = f32_of(size << (23 - mantissa)) * (f32)power_of_bias(mantissa, fnuz);
  int special = fnuz ? code == 0x80 : size >= infinite;
  value = special ? (!fnuz && size == 0x7C ? __builtin_inff() : __builtin_nanf("")) : value;
  return code & 0x80 ? -value : value;
}
static inline u32 to_float8(f32 value, u32 mantissa, u64 fnuz) {
  u32 sign = of_f32(value) >> 24 & 0x80, last = fnuz ? 0x7F : mantissa == 2 ? 0x7B : 0x7E;
  // The exponent of an f64 becomes that of the code, whose lowest bit is at a distance.
  f64 size = (f64)f32_of(of_f32(value) & 0x7FFFFFFF) * 0x1p-896 / power_of_bias(mantissa, fnuz);
  u32 distance = 52 - mantissa;
  u64 bits = of_f64(size);
  u64 code = (bits + ((u64)1 << (distance - 1)) - 1 + (bits >> distance & 1)) >> distance;
  if (value != value) return fnuz ? 0x80 : 0x7F;
  if (code > last) return fnuz ? 0x80 : (last + 1) | sign;
  return code || !fnuz ? (u32)code | sign : 0;
}
static inline f32 fract_f32(f32 value) {
  f32 rest = value - __builtin_floorf(value);
  return rest >= 1 ? 0x1.fffffep-1f : rest;
}
static inline f64 fract_f64(f64 value) {
  f64 rest = value - __builtin_floor(value);
  return rest >= 1 ? 0x1.fffffffffffffp-1 : rest;
}
static inline f16 fract_f16(f16 value) {
  f16 rest = (f16)((f32)value - __builtin_floorf((f32)value));
  return (f32)rest >= 1 ? (f16)0x1.ffcp-1f : rest;
}
// A fused multiply-add times a power of two, rounded once.
static inline f32 scaled_fma_f32(f32 a, f32 b, f32 c, f32 factor) {
  f64 product = (f64)a * b, total = product + c, back = total - product;
  f64 rest = (product - (total - back)) + (c - back);
  // Round to odd: what is left behind shows in the lowest bit.
  u64 bits = of_f64(total), inexact = rest != 0 && (bits & 0x7FF0000000000000) != 0x7FF0000000000000;
  bits -= inexact & ((bits ^ of_f64(rest)) >> 63);
  return (f32)(f64_of(bits | inexact) * (f64)factor);
}
static inline f64 scaled_fma_f64(f64 a, f64 b, f64 c, f64 factor) {
  f64 sum = fma_f64(a, b, c), result = sum * factor, size = __builtin_fabs(sum);
  // Out of the range before the factor: it scales the operand that stays in the range.
  if (factor > 1 ? size < 0x1p-1022 : size == __builtin_inf()) {
    int first = (__builtin_fabs(a) < __builtin_fabs(b)) == (factor > 1);
    return fma_f64(first ? a * factor : a, first ? b : b * factor, c * factor);
  }
  // A denormal is rounded a second time, which is wrong if the sum is in the middle of two.
  f64 beyond = sum - result / factor;
  if (factor > 1 || __builtin_fabs(beyond) != 0x1p-1074 / factor * 0.5) return result;
  f64 high = a * b, low = fma_f64(a, b, -high), total = high + c, back = total - high;
  f64 error = ((total - sum) + ((high - (total - back)) + (c - back))) + low;
  if (error == 0 || (error > 0) != (beyond > 0)) return result;
  return result + (beyond > 0 ? 0x1p-1074 : -0x1p-1074);
}
static inline i32 exponent_of_f32(f32 value) {
  u32 bits = of_f32(value) & 0x7FFFFFFF;
  return bits >> 23 ? (i32)(bits >> 23) : 9 - (i32)__builtin_clz(bits | 1);
}
static inline i32 exponent_of_f64(f64 value) {
  u64 bits = of_f64(value) & 0x7FFFFFFFFFFFFFFF;
  return bits >> 52 ? (i32)(bits >> 52) : 12 - (i32)__builtin_clzll(bits | 1);
}
// The three steps of a division; gfxemu/vector.py explains them.
#define DIVISION(F, U, SIGN, SHIFT, WIDTH, LEAST, UP, DOWN, WIDE, FAR, DEEP)                        \
  static inline i32 exponent_##F(F value) {                                                        \
    return (i32)(of_##F(value) >> SHIFT & ((1 << WIDTH) - 1));                                     \
  }                                                                                                \
  static inline int tiny_##F(F value) { return (of_##F(value) & ~SIGN) < LEAST; }                  \
  static inline F div_scale_##F(F value, F denominator, F numerator, u32 *flag) {                  \
    F larger = (F)((WIDE)value * (WIDE)UP), smaller = (F)((WIDE)value * (WIDE)DOWN);               \
    int tiny_inverse = exponent_##F(denominator) >= (1 << WIDTH) - 3;                              \
    int tiny_quotient = tiny_##F(numerator / denominator);                                         \
    int is_denominator = value == denominator;                                                     \
    *flag = 0;                                                                                     \
    if (denominator == 0 || numerator == 0) return (F)__builtin_nan("");                           \
    if (exponent_##F(numerator) - exponent_##F(denominator) >= FAR)                                \
      return *flag = 1, is_denominator ? larger : value;                                           \
    if (tiny_##F(denominator)) return larger;                                                      \
    if (tiny_inverse && tiny_quotient) return *flag = 1, is_denominator ? smaller : value;         \
    if (tiny_inverse) return smaller;                                                              \
    if (tiny_quotient) return *flag = 1, value == numerator ? larger : value;                      \
    return exponent_##F(numerator) <= DEEP ? larger : value;                                       \
  }                                                                                                \
  static inline F div_fmas_##F(F a, F b, F c, u32 scaled) {                                        \
    F factor = exponent_##F(c) > (1 << (WIDTH - 1)) - 1 ? (F)UP : (F)DOWN;                         \
    return scaled ? scaled_fma_##F(a, b, c, factor) : fma_##F(a, b, c);                            \
  }                                                                                                \
  static inline F div_fixup_##F(F quotient, F denominator, F numerator) {                          \
    U negative = (of_##F(denominator) ^ of_##F(numerator)) & SIGN;                                 \
    U infinite = (U)((1 << WIDTH) - 1) << SHIFT;                                                   \
    U d = of_##F(denominator) & ~SIGN, n = of_##F(numerator) & ~SIGN;                              \
    i32 difference = exponent_of_##F(numerator) - exponent_of_##F(denominator);                    \
    i32 largest = 1 << (WIDTH - 1);                                                                \
    U size = of_##F(quotient) & ~SIGN;                                                             \
    size = difference > largest ? infinite : difference < 1 - largest - SHIFT ? 0 : size;          \
    int special = d >= infinite || n >= infinite || !d || !n;                                      \
    return special ? numerator / denominator : F##_of(size | negative);                            \
  }
DIVISION(f32, u32, 0x80000000u, 23, 8, 0x00800000u, 0x1p64, 0x1p-64, f64, 96, 23)
DIVISION(f64, u64, 0x8000000000000000ull, 52, 11, 0x0010000000000000ull, 0x1p128, 0x1p-128, f64, 768, 53)

static inline f16 div_fixup_f16(f16 quotient, f16 denominator, f16 numerator) {
  u32 negative = (of_f16(denominator) ^ of_f16(numerator)) & 0x8000;
  u32 d = of_f16(denominator) & 0x7FFF, n = of_f16(numerator) & 0x7FFF;
  int special = d >= 0x7C00 || n >= 0x7C00 || !d || !n;
  f16 plain = f16_of((u16)((of_f16(quotient) & 0x7FFF) | negative));
  return special ? (f16)((f32)numerator / (f32)denominator) : plain;
}

typedef void VectorOp(const void *const *p, void *out, u32 *flags, const Insn *insn);
typedef u64 ScalarOp(u64 a, u64 b, u64 c, u32 *scc, u64 *exec);

#include "operations.h"

// ---- Vector instructions ----------------------------------------------------------------------------

static void modify(const Insn *i, void *out) {
  f64 factor = f64_of((u64)i->factor);
  if (i->kind == 'f') {
    f32 *to = out;
    if (i->factor) for (int l = 0; l < LANES; l++) to[l] = to[l] * (f32)factor;
    if (i->clamp) for (int l = 0; l < LANES; l++) to[l] = fmin_f32(fmax_f32(to[l], 0), 1);
  } else if (i->kind == 'd') {
    f64 *to = out;
    if (i->factor) for (int l = 0; l < LANES; l++) to[l] = to[l] * factor;
    if (i->clamp) for (int l = 0; l < LANES; l++) to[l] = fmin_f64(fmax_f64(to[l], 0), 1);
  } else {
    u32 *to = out;
    for (int l = 0; l < LANES; l++) {
      f16 value = f16_of((u16)to[l]);
      if (i->factor) value = (f16)((f32)value * (f32)factor);
      if (i->clamp) value = fmin_f16(fmax_f16(value, 0), 1);
      to[l] = of_f16(value);
    }
  }
}

static void run_vector(Ctx *c, const Insn *i, Wave *w) {
  u64 room[4][LANES] ALIGNED, out[LANES] ALIGNED;
  u32 flags[LANES] ALIGNED, own[LANES] ALIGNED;
  const void *p[4] = {0, 0, 0, 0};
  u64 exec = w->exec;
  const u32 *active = w->active;
  for (int n = 0; n < i->x[0]; n++) p[n] = fetch(w, &i->in[n], i->x[1] >> n & 1, room[n]);
  if (i->dpp) {
    const Dpp *d = &c->l->dpp[i->dpp - 1];
    u64 there = 0, moved[LANES] ALIGNED;
    for (int l = 0; l < LANES; l++) {
      int source = d->source[l];
      u64 good = d->valid >> l & (w->exec | d->inactive) >> source & 1;
      if (i->x[1] & 1) moved[l] = good ? ((const u64 *)p[0])[source] : 0;
      else ((u32 *)moved)[l] = good ? ((const u32 *)p[0])[source] : 0;
      there |= good << l;
    }
    memcpy(room[0], moved, sizeof moved);
    p[0] = room[0];
    exec &= d->enabled & (there | d->zeros);
    expand(exec, own);
    active = own;
  }
  vector_ops[i->op](p, out, flags, i);
  if (i->kind) modify(i, out);
  u32 *value = (u32 *)out, *to = w->v + i->dst * LANES;
  switch (i->result) {
    case WHOLE: put(w, i->dst, value, exec, active); break;
    case PAIR: {
      u32 low[LANES] ALIGNED, high[LANES] ALIGNED;
      for (int l = 0; l < LANES; l++) low[l] = (u32)out[l], high[l] = (u32)(out[l] >> 32);
      put(w, i->dst, low, exec, active);
      put(w, i->dst + 1, high, exec, active);
      break;
    }
    case HALF: {
      int distance = i->high ? 16 : 0;
      u32 others = i->keep_other || i->high ? (i->high ? 0xFFFF : 0xFFFF0000) : 0;
      for (int l = 0; l < LANES; l++) value[l] = (u32)(u16)value[l] << distance | (to[l] & others);
      put(w, i->dst, value, exec, active);
      break;
    }
    case PART: {
      int width = i->high < 4 ? 8 : 16, place = (int)(i->high < 4 ? i->high : i->high - 4);
      u32 field = (1u << width) - 1, distance = (u32)(width * place);
      u32 others = ~(field << distance);
      u32 above = (u32)(0xFFFFFFFFull << (width * (place + 1)));
      for (int l = 0; l < LANES; l++) {
        u32 part = value[l] & field, whole = part << distance;
        if (i->keep_other == 2) whole |= to[l] & others;
        if (i->keep_other == 1 && part >> (width - 1)) whole |= above;
        value[l] = whole;
      }
      put(w, i->dst, value, exec, active);
      break;
    }
    case ONE:
      w->s[i->dst] = value[0];
      update_exec(w);
      break;
  }
  if (i->mask >= 0) {
    u64 mask = packed(flags) & exec;
    set_mask(w, i->mask, mask);
    if (i->exec_too) set_mask(w, EXEC, mask);
    if (i->exec_too || i->mask == EXEC) update_exec(w);
  }
}

// Two operations, which both read before one writes: x: the record of the first
static void run_dual(Ctx *c, const Insn *i, Wave *w) {
  u64 room[4][LANES] ALIGNED;
  u32 out[2][LANES] ALIGNED;
  const Insn *parts = c->l->insns + i->x[0];
  for (int which = 0; which < 2; which++) {
    const Insn *part = parts + which;
    const void *p[4] = {0, 0, 0, 0};
    for (int n = 0; n < part->x[0]; n++) p[n] = fetch(w, &part->in[n], 0, room[n]);
    vector_ops[part->op](p, out[which], 0, part);
  }
  for (int which = 0; which < 2; which++) put(w, parts[which].dst, out[which], w->exec, w->active);
}

static void run_scalar(const Insn *i, Wave *w) {
  u64 exec = pair_of(w, EXEC);
  u32 scc = w->scc;
  u64 in[3];
  for (int n = 0; n < 3; n++) in[n] = scalar_value(w, &i->in[n]);
  u64 value = scalar_ops[i->op](in[0], in[1], in[2], &scc, &exec);
  // In the order of the outputs: the register, EXEC, SCC.
  if (i->result == PAIR) set_pair(w, i->dst, value);
  if (i->result == WHOLE) w->s[i->dst] = (u32)value;
  // With results of 32 bits, EXEC_HI stays.
  if (i->x[2]) {
    if (i->in[1].kind == SCALAR32) w->s[EXEC] = (u32)exec;
    else set_pair(w, EXEC, exec);
  }
  w->scc = scc & 1;
  if (i->x[2] || (i->result != NO_RESULT && i->dst + 1 >= EXEC && i->dst <= EXEC + 1)) update_exec(w);
}

// Two halves of a register, by an operation of 16 bits; or two registers, by one of 32 bits.
static void run_packed(const Insn *i, Wave *w) {
  u64 room[3][LANES] ALIGNED;
  u32 result[2][LANES] ALIGNED, flags[LANES];
  u64 out[LANES] ALIGNED;
  for (int half = 0; half < 2; half++) {
    const void *p[4] = {0, 0, 0, 0};
    for (int n = 0; n < i->x[0]; n++) {
      Operand o = i->in[n];
      const i64 *by = &i->x[2 + 6 * half + 2 * n];  // shift or register, sign
      o.flip = (u64)by[1];
      if (i->result == HALF) {
        o.shift = by[0], o.bits = 16;
      } else {
        if (o.kind == VECTOR32 || o.kind == SCALAR32) o.reg = by[0];
      }
      p[n] = fetch(w, &o, 0, room[n]);
    }
    vector_ops[i->op](p, out, flags, i);
    if (i->kind) modify(i, out);
    memcpy(result[half], out, sizeof flags);
  }
  if (i->result == HALF) {
    for (int l = 0; l < LANES; l++) result[0][l] = (u32)(u16)result[0][l] | result[1][l] << 16;
    put(w, i->dst, result[0], w->exec, w->active);
  } else {
    put(w, i->dst, result[0], w->exec, w->active);
    put(w, i->dst + 1, result[1], w->exec, w->active);
  }
}

// An operand of V_MAD_MIX and V_DOT2: x[3n] half, x[3n+1] shift, x[3n+2] keep and flip.
static void run_mix(const Insn *i, Wave *w) {
  u64 room[3][LANES] ALIGNED;
  f32 value[3][LANES] ALIGNED;
  u32 result[LANES] ALIGNED;
  for (int n = 0; n < 3; n++) {
    const u32 *from = fetch(w, &i->in[n], 0, room[n]);
    u32 shift = (u32)i->x[4 * n + 1], keep = (u32)i->x[4 * n + 2], flip = (u32)i->x[4 * n + 3];
    if (i->x[4 * n])
      for (int l = 0; l < LANES; l++) value[n][l] = (f32)f16_of((u16)(from[l] >> shift));
    else
      for (int l = 0; l < LANES; l++) value[n][l] = f32_of(from[l]);
    for (int l = 0; l < LANES; l++) value[n][l] = f32_of((of_f32(value[n][l]) & keep) ^ flip);
  }
  u32 *to = w->v + i->dst * LANES;
  for (int l = 0; l < LANES; l++) {
    f32 sum = fma_f32(value[0][l], value[1][l], value[2][l]);
    if (i->clamp) sum = fmin_f32(fmax_f32(sum, 0), 1);
    u32 half = of_f16((f16)sum);
    result[l] = i->result == WHOLE ? of_f32(sum)
                : i->high         ? half << 16 | (to[l] & 0xFFFF)
                                  : half | (to[l] & 0xFFFF0000);
  }
  put(w, i->dst, result, w->exec, w->active);
}

static void run_dot(const Insn *i, Wave *w) {
  u64 room[3][LANES] ALIGNED;
  u32 result[LANES] ALIGNED;
  const u32 *a = fetch(w, &i->in[0], 0, room[0]), *b = fetch(w, &i->in[1], 0, room[1]);
  const u32 *c = fetch(w, &i->in[2], 0, room[2]);
  for (int l = 0; l < LANES; l++) {
    f64 total = f32_of(c[l]);
    for (int at = 0; at < 32; at += 16) {
      u32 left = a[l] >> at & 0xFFFF, right = b[l] >> at & 0xFFFF;
      f64 x = i->x[0] ? from_bf16(left) : (f32)f16_of((u16)left);
      f64 y = i->x[0] ? from_bf16(right) : (f32)f16_of((u16)right);
      total = total + x * y;
    }
    result[l] = of_f32((f32)total);
  }
  put(w, i->dst, result, w->exec, w->active);
}

// ---- Lanes -------------------------------------------------------------------------------------------

static void set_scalar(Wave *w, i64 reg, u32 value) {
  w->s[reg] = value;
  if (reg == EXEC || reg == EXEC + 1) update_exec(w);
}

static void run_readlane(const Insn *i, Wave *w) {
  u64 room[LANES] ALIGNED;
  const u32 *from = fetch(w, &i->in[0], 0, room);
  u32 lane = i->x[0] ? (w->exec ? (u32)__builtin_ctzll(w->exec) : 0)
                     : (u32)scalar_value(w, &i->in[1]) & (LANES - 1);
  set_scalar(w, i->dst, from[lane]);
}

static void run_writelane(const Insn *i, Wave *w) {
  u32 lane = (u32)scalar_value(w, &i->in[1]) & (LANES - 1);
  w->v[i->dst * LANES + lane] = (u32)scalar_value(w, &i->in[0]);
}

static void run_swap(const Insn *i, Wave *w) {
  u32 *source = w->v + i->in[0].reg * LANES, *target = w->v + i->dst * LANES;
  int distance = (int)i->x[0];
  for (int l = 0; l < LANES; l++) {
    if (l / distance % 2) continue;
    u32 kept = source[l];
    source[l] = target[l + distance];
    target[l + distance] = kept;
  }
}

static void run_permute(const Insn *i, Wave *w) {
  const u32 *address = w->v + i->in[0].reg * LANES, *data = w->v + i->in[1].reg * LANES;
  u32 result[LANES] ALIGNED, offset = (u32)i->x[1];
  memset(result, 0, sizeof result);
  for (int l = 0; l < LANES; l++) {
    u32 other = (address[l] + offset) >> 2 & (LANES - 1);
    if (i->x[0] == 0) {
      result[l] = data[other] & w->active[other];
    } else if (w->exec >> l & 1) {
      result[other] = data[l];
    }
  }
  put(w, i->dst, result, w->exec, w->active);
}

static void run_swizzle(Ctx *c, const Insn *i, Wave *w) {
  const Dpp *d = &c->l->dpp[i->dpp - 1];
  const u32 *data = w->v + i->in[0].reg * LANES;
  u32 result[LANES] ALIGNED;
  for (int l = 0; l < LANES; l++) result[l] = data[d->source[l]] & w->active[d->source[l]];
  put(w, i->dst, result, w->exec, w->active);
}

// V_PERMLANE16 and V_PERMLANEX16: x: distance of the row, inactive lanes too, zeros
static void run_row(const Insn *i, Wave *w) {
  u64 room[LANES] ALIGNED, select[2];
  const u32 *from = fetch(w, &i->in[0], 0, room), *old = w->v + i->dst * LANES;
  u32 result[LANES] ALIGNED;
  for (int n = 0; n < 2; n++) select[n] = scalar_value(w, &i->in[n + 1]);
  for (int l = 0; l < LANES; l++) {
    int chosen = (int)((u32)select[l >> 3 & 1] >> (l % 8 * 4) & 15);
    int lane = ((l ^ (int)i->x[0]) & ~15) + chosen;
    int there = i->x[1] || (w->exec >> lane & 1);
    result[l] = there ? from[lane] : i->x[2] ? 0 : old[l];
  }
  put(w, i->dst, result, w->exec, w->active);
}

static void run_exchange(const Insn *i, Wave *w) {
  u32 *a = w->v + i->in[0].reg * LANES, *b = w->v + i->dst * LANES, kept[LANES] ALIGNED;
  memcpy(kept, a, sizeof kept);
  put(w, i->in[0].reg, b, w->exec, w->active);
  put(w, i->dst, kept, w->exec, w->active);
}

// ---- Matrices ----------------------------------------------------------------------------------------

#ifdef __AVX512F__
typedef __m512 Floats;
enum { WIDTH = 16 };
#define F_LOAD _mm512_loadu_ps
#define F_STORE _mm512_storeu_ps
#define F_SET _mm512_set1_ps
#define F_FMA _mm512_fmadd_ps
#define F_ADD _mm512_add_ps
#else
typedef __m256 Floats;
enum { WIDTH = 8 };
#define F_LOAD _mm256_loadu_ps
#define F_STORE _mm256_storeu_ps
#define F_SET _mm256_set1_ps
#define F_FMA _mm256_fmadd_ps
#define F_ADD _mm256_add_ps
#endif

enum { OF_F32, OF_F16, OF_BF16, OF_FP8, OF_BF8 };

// Elements as f32, [depth][rows], of which each group of lanes has some; as matrix.py's _unpack.
static inline __attribute__((always_inline)) void unpack(const f32 *formats, const u32 *v, int kind,
                                                         int rows, int groups, int depth, f32 *out) {
  int each = depth / groups;
  for (int g = 0; g < groups; g++)
    for (int j = 0; j < each; j++) {
      f32 *to = out + (g * each + j) * rows;
      if (kind == OF_F32) {
        memcpy(to, v + j * LANES + g * rows, 4 * (size_t)rows);
      } else if (kind == OF_F16) {
        const u32 *from = v + j / 2 * LANES + g * rows;
        int shift = 16 * (j % 2);
        for (int r = 0; r < rows; r++) to[r] = (f32)f16_of((u16)(from[r] >> shift));
      } else if (kind == OF_BF16) {
        const u32 *from = v + j / 2 * LANES + g * rows;
        int shift = 16 * (j % 2);
        for (int r = 0; r < rows; r++) to[r] = f32_of(from[r] >> shift << 16);
      } else {
        const u32 *from = v + j / 4 * LANES + g * rows;
        int shift = 8 * (j % 4);
        const f32 *values = formats + (kind == OF_BF8 ? 256 : 0);
        for (int r = 0; r < rows; r++) to[r] = values[from[r] >> shift & 0xFF];
      }
    }
}

// `height` rows of a result lie next to each other in the registers of a lane.
static inline __attribute__((always_inline)) void multiply(const f32 *a, const f32 *b, u32 *v, i64 dst,
                                                           const f32 *c, f32 constant, int rows,
                                                           int height, int depth) {
  enum { MOST = 32 / WIDTH };
  int groups = LANES / rows, vectors = rows / WIDTH, step = depth < 4 ? depth : 4;
  for (int row = 0; row < rows; row += 4) {
    // From +0: a sum of zeros is +0, whatever their signs.
    Floats total[4][MOST];
    for (int i = 0; i < 4; i++)
      for (int n = 0; n < vectors; n++) total[i][n] = F_SET(0);
    for (int k = 0; k < depth; k += step) {
      Floats sum[4][MOST];
      for (int i = 0; i < 4; i++)
        for (int n = 0; n < vectors; n++) sum[i][n] = F_SET(0);
      for (int j = k; j < k + step; j++)
        for (int i = 0; i < 4; i++)
          for (int n = 0; n < vectors; n++)
            sum[i][n] = F_FMA(F_SET(a[j * rows + row + i]), F_LOAD(b + j * rows + n * WIDTH), sum[i][n]);
      for (int i = 0; i < 4; i++)
        for (int n = 0; n < vectors; n++) total[i][n] = F_ADD(total[i][n], sum[i][n]);
    }
    for (int i = 0; i < 4; i++) {
      int above = (row + i) / height, group = above % groups;
      int reg = above / groups * height + (row + i) % height;
      for (int n = 0; n < vectors; n++) {
        int at = reg * LANES + group * rows + n * WIDTH;
        Floats old = c ? F_LOAD(c + at) : F_SET(constant);
        F_STORE((f32 *)v + dst * LANES + at, F_ADD(total[i][n], old));
      }
    }
  }
}

// x: a, b, c register or -1, kind of A, of B, rows, depth, bits of a constant, height, groups of K
static void run_matrix(Ctx *ctx, const Insn *i, Wave *w) {
  f32 a[2048] ALIGNED, b[2048] ALIGNED, old[1024] ALIGNED;
  const i64 *x = i->x;
  const u32 *va = w->v + x[0] * LANES, *vb = w->v + x[1] * LANES;
  const f32 *c = x[2] < 0 ? 0 : (const f32 *)w->v + x[2] * LANES, *formats = ctx->l->formats;
  f32 constant = f32_of((u32)x[7]);
  if (c && x[2] != i->dst) {
    memcpy(old, c, sizeof(f32) * (size_t)(x[5] * x[5]));
    c = old;
  }
#define FORM(KIND, ROWS, DEPTH, HEIGHT, GROUPS)                                                    \
  if (x[3] == KIND && x[4] == KIND && x[5] == ROWS && x[6] == DEPTH && x[8] == HEIGHT) {           \
    unpack(formats, va, KIND, ROWS, GROUPS, DEPTH, a);                                             \
    unpack(formats, vb, KIND, ROWS, GROUPS, DEPTH, b);                                             \
    multiply(a, b, w->v, i->dst, c, constant, ROWS, HEIGHT, DEPTH);                                \
    return;                                                                                        \
  }
#if LANES == 64
  FORM(OF_BF16, 32, 16, 4, 2)
  FORM(OF_F16, 32, 16, 4, 2)
  FORM(OF_BF16, 16, 32, 4, 4)
  FORM(OF_F16, 16, 32, 4, 4)
  FORM(OF_BF16, 32, 8, 4, 2)
  FORM(OF_F16, 32, 8, 4, 2)
  FORM(OF_BF16, 16, 16, 4, 4)
  FORM(OF_F16, 16, 16, 4, 4)
#else
  FORM(OF_BF16, 16, 16, 1, 1)
  FORM(OF_F16, 16, 16, 1, 1)
  FORM(OF_BF16, 16, 16, 8, 2)
  FORM(OF_F16, 16, 16, 8, 2)
#endif
  unpack(formats, va, (int)x[3], (int)x[5], (int)x[9], (int)x[6], a);
  unpack(formats, vb, (int)x[4], (int)x[5], (int)x[9], (int)x[6], b);
  if (x[5] == 32)
    multiply(a, b, w->v, i->dst, c, constant, 32, (int)x[8], (int)x[6]);
  else
    multiply(a, b, w->v, i->dst, c, constant, 16, (int)x[8], (int)x[6]);
}

static void unpack_integers(const u32 *v, int bits, int sign, int rows, int groups, int depth, i32 *out) {
  int each = depth / groups;
  for (int k = 0; k < depth; k++) {
    const u32 *from = v + k % each * bits / 32 * LANES + k / each * rows;
    int above = 32 - bits - k % each * bits % 32;
    for (int r = 0; r < rows; r++) {
      u32 moved = from[r] << above;
      out[k * rows + r] = sign ? (i32)moved >> (32 - bits) : (i32)(moved >> (32 - bits));
    }
  }
}

// x as of run_matrix, but 3 bits of an element, 4 whether A and B have a sign
static void run_integers(const Insn *i, Wave *w) {
  enum { MOST = 16 * 32 };
  const i64 *x = i->x;
  i32 a[MOST] ALIGNED, b[MOST] ALIGNED, old[16 * 16] ALIGNED;
  int bits = (int)x[3], rows = (int)x[5], depth = (int)x[6], height = (int)x[8], groups = LANES / rows;
  unpack_integers(w->v + x[0] * LANES, bits, x[4] & 1, rows, (int)x[9], depth, a);
  unpack_integers(w->v + x[1] * LANES, bits, x[4] >> 1 & 1, rows, (int)x[9], depth, b);
  for (int n = 0; n < rows * rows; n++) old[n] = (i32)x[7];
  if (x[2] >= 0) memcpy(old, w->v + x[2] * LANES, sizeof(i32) * (size_t)(rows * rows));
  for (int row = 0; row < rows; row++) {
    int above = row / height, reg = above / groups * height + row % height;
    for (int n = 0; n < rows; n++) {
      int at = reg * LANES + above % groups * rows + n;
      i64 total = old[at];
      for (int k = 0; k < depth; k++) total += a[k * rows + row] * b[k * rows + n];
      if (i->clamp) total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
      w->v[i->dst * LANES + at] = (u32)total;
    }
  }
}

// ---- Memory -------------------------------------------------------------------------------------------

static void report(Ctx *c, const Insn *i, i64 kind, u64 value, i64 size, const Wave *w, int lane) {
  Launch *l = c->l;
  i64 index = i - l->insns;
  if (c->seen[index] & 1 << kind) return;
  c->seen[index] |= (u16)(1 << kind);
  if (l->fault_count < l->fault_room) {
    Fault fault = {kind, index, (i64)value, size, w->group, w->number, lane};
    l->faults[l->fault_count++] = fault;
  }
  if (l->strict) {
    l->status = STRICT;
    c->stop = 1;
  }
}

static int mapped(Ctx *c, u64 address, u64 size) {
  if (address >= c->low && address < c->high && c->high - address >= size) return 1;
  const Launch *l = c->l;
  i64 below = 0, above = l->allocations;
  while (below < above) {
    i64 middle = (below + above) / 2;
    if (l->starts[middle] <= address) below = middle + 1;
    else above = middle;
  }
  if (!below) return 0;
  u64 start = l->starts[below - 1], end = l->ends[below - 1];
  if (address > end || end - address < size) return 0;
  c->low = start;
  c->high = end;
  return 1;
}

// Lanes of `active` whose addresses may be used.
static u64 usable(Ctx *c, const Insn *i, const Wave *w, const u64 *address, u64 size, u64 active) {
  u64 good = 0;
  for (u64 rest = active; rest; rest &= rest - 1) {
    int l = __builtin_ctzll(rest);
    if (mapped(c, address[l], size)) good |= (u64)1 << l;
  }
  u64 bad = active & ~good;
  if (bad) {
    int lane = __builtin_ctzll(bad);
    report(c, i, UNMAPPED, address[lane], (i64)size, w, lane);
  }
  return good;
}

enum { BUFFER, GLOBAL, GLOBAL_SCALAR, FLAT, SCRATCH, LOCAL };

// How an access finds its addresses; x of an instruction begins with it.
typedef struct {
  i64 space, offset, address, scalar, index, vector, words;
} Access;

typedef struct {
  u64 address[LANES];
  i64 within[LANES];
  i64 limit;
  u64 counted;
  int counts;  // an index is compared with the number of records
} Reach;

static inline i64 operand_i32(const Wave *w, const Operand *o) { return (i32)(u32)scalar_value(w, o); }

static void reach_buffer(const Insn *i, const Wave *w, const Access *x, Reach *r) {
  const u32 *d = w->s + x->scalar;
  u64 base = d[0] | (u64)(d[1] & 0xFFFF) << 32;
  i64 start = operand_i32(w, &i->in[0]);
  i64 stride = x->index >= 0 ? d[1] >> 16 & 0x3FFF : 0;
  const u32 *index = x->index >= 0 ? w->v + x->index * LANES : 0;
  const u32 *vector = x->vector >= 0 ? w->v + x->vector * LANES : 0;
  for (int l = 0; l < LANES; l++) {
    i64 within = x->offset + (vector ? vector[l] : 0);
    if (index) within += stride * index[l];
    r->within[l] = within;
    r->address[l] = base + (u64)(within + start);
  }
  r->counts = index && stride;
  r->counted = ALL;
  if (r->counts) {
    r->counted = 0;
    for (int l = 0; l < LANES; l++) r->counted |= (u64)(index[l] < d[2]) << l;
  }
  r->limit = (i64)d[2] - start;
}

// Addresses in the scratch memory of each lane, by offsets into it, and the lanes that may use them.
static u64 own_scratch(Ctx *c, const Insn *i, const Wave *w, i64 base, const u32 *added, u64 size,
                       u64 *address) {
  const Launch *l = c->l;
  u64 good = w->exec;
  i64 wave = w->group * l->group_waves + w->number;
  for (int n = 0; n < LANES; n++) {
    i64 within = base + (added ? added[n] : 0);
    int inside = within >= 0 && within + (i64)size <= l->scratch_row;
    if (!inside) good &= ~((u64)1 << n);
    i64 place = (wave * LANES + n) * l->scratch_row + (inside && w->exec >> n & 1 ? within : 0);
    address[n] = l->scratch_start + (u64)place;
  }
  u64 bad = w->exec & ~good;
  if (bad) report(c, i, SCRATCH_RANGE, 0, (i64)size, w, __builtin_ctzll(bad));
  return good;
}

// Addresses of other accesses, and the lanes that may use them.
static u64 reach(Ctx *c, const Insn *i, const Wave *w, const Access *x, u64 size, u64 *address) {
  Launch *l = c->l;
  u64 good = w->exec;
  switch (x->space) {
    case GLOBAL:
    case FLAT: {
      const u32 *low = w->v + x->address * LANES, *high = low + LANES;
      for (int n = 0; n < LANES; n++)
        address[n] = (low[n] | (u64)high[n] << 32) + (u64)x->offset;
      if (x->space == FLAT)
        for (int n = 0; n < LANES; n++) {
          u64 within = address[n] - ((u64)1 << 48);
          if (address[n] >> 48 == 1 && within + size <= (u64)l->lds_bytes) address[n] = within + w->lds;
          within = address[n] - ((u64)2 << 48);
          if (address[n] >> 48 == 2 && within + size <= (u64)l->scratch_row) {
            u64 lane = (u64)(w->group * l->group_waves + w->number) * LANES + (u64)n;
            address[n] = l->scratch_start + lane * (u64)l->scratch_row + within;
          }
        }
      break;
    }
    case GLOBAL_SCALAR: {
      u64 base = pair_of(w, x->scalar) + (u64)x->offset;
      const u32 *added = w->v + x->address * LANES;
      for (int n = 0; n < LANES; n++) address[n] = base + added[n];
      break;
    }
    case SCRATCH: {
      i64 base = x->offset + (x->scalar >= 0 ? w->s[x->scalar] : 0);
      good = own_scratch(c, i, w, base, x->address >= 0 ? w->v + x->address * LANES : 0, size, address);
      break;
    }
    case LOCAL: {
      const u32 *from = w->v + x->address * LANES;
      i64 limit = l->lds_bytes - (i64)size;
      u32 flags[LANES] ALIGNED;
      for (int n = 0; n < LANES; n++) {
        // 32 bits: compilers add an offset to a negative number.
        i64 place = (u32)(from[n] + (u32)x->offset);
        flags[n] = place > limit;
        address[n] = (u64)place + w->lds;
      }
      u64 bad = packed(flags) & w->exec;
      if (bad) {
        int lane = __builtin_ctzll(bad);
        report(c, i, LDS_RANGE, address[lane] - w->lds, (i64)size, w, lane);
        good &= ~bad;
      }
      break;
    }
  }
  return good;
}

static inline u32 load_u32(u64 address) {
  u32 value;
  memcpy(&value, (const void *)address, 4);
  return value;
}
static inline void store_u32(u64 address, u32 value) { memcpy((void *)address, &value, 4); }

// Words of the usable lanes, to word[count][LANES]; 0 for others.
static void read_words(const u64 *address, u64 used, int count, u32 *word) {
  if (used != ALL) memset(word, 0, 4 * LANES * (size_t)count);
  if (used == ALL) {
    if (count == 4) {
      for (int l = 0; l < LANES; l += 4) {
        __m128 a = _mm_loadu_ps((const f32 *)address[l]), b = _mm_loadu_ps((const f32 *)address[l + 1]);
        __m128 e = _mm_loadu_ps((const f32 *)address[l + 2]), f = _mm_loadu_ps((const f32 *)address[l + 3]);
        _MM_TRANSPOSE4_PS(a, b, e, f);
        _mm_storeu_ps((f32 *)word + l, a);
        _mm_storeu_ps((f32 *)word + LANES + l, b);
        _mm_storeu_ps((f32 *)word + 2 * LANES + l, e);
        _mm_storeu_ps((f32 *)word + 3 * LANES + l, f);
      }
      return;
    }
    for (int l = 0; l < LANES; l++)
      for (int n = 0; n < count; n++) word[n * LANES + l] = load_u32(address[l] + 4 * (u64)n);
    return;
  }
  for (u64 rest = used; rest; rest &= rest - 1) {
    int l = __builtin_ctzll(rest);
    for (int n = 0; n < count; n++) word[n * LANES + l] = load_u32(address[l] + 4 * (u64)n);
  }
}

// Word by word, so that of lanes that share bytes the same one wins as in NumPy.
static void write_words(const u64 *address, u64 used, int count, const u32 *word) {
  int crooked = 0;
  for (u64 rest = used; rest; rest &= rest - 1) crooked |= (int)address[__builtin_ctzll(rest)] & 3;
  if (crooked) {
    for (u64 rest = used; rest; rest &= rest - 1) {
      int l = __builtin_ctzll(rest);
      for (int n = 0; n < count; n++) store_u32(address[l] + 4 * (u64)n, word[n * LANES + l]);
    }
    return;
  }
  for (int n = 0; n < count; n++)
    for (u64 rest = used; rest; rest &= rest - 1) {
      int l = __builtin_ctzll(rest);
      store_u32(address[l] + 4 * (u64)n, word[n * LANES + l]);
    }
}

static inline int in_map(const Access *x) { return x->space != LOCAL && x->space != SCRATCH; }

enum { WHOLE_BUFFER, BY_WORD, OWN_SCRATCH, NOT_EMULATED };

// How waves reach a buffer. If some lane is beyond it, each word is an access of its own. The only
// swizzled buffer is the scratch memory of gfx90a.
static int buffer_kind(Ctx *c, const Insn *i, const Part *part, const Access *x) {
  // RDNA has two bits for kinds of swizzling.
  int beyond = 0, swizzled = 0, own = 0, swizzling = LANES == 64 ? 31 : 30;
  for (int n = 0; n < part->n; n++) {
    const u32 *d = c->waves[part->rows[n]].s + x->scalar;
    u64 base = d[0] | (u64)(d[1] & 0xFFFF) << 32;
    swizzled += d[1] >> swizzling || d[3] >> 23 & 1;
    own += d[1] >> swizzling == 1 && base == c->l->scratch_start;
  }
  if (swizzled) return own == part->n ? OWN_SCRATCH : NOT_EMULATED;
  for (int n = 0; n < part->n && !beyond; n++) {
    Reach r;
    reach_buffer(i, &c->waves[part->rows[n]], x, &r);
    if (r.counts) continue;
    i64 last = 4 * (x->words - 1);
    for (int l = 0; l < LANES; l++) beyond |= r.within[l] + last >= r.limit;
  }
  return beyond ? BY_WORD : WHOLE_BUFFER;
}

static u64 scratch_buffer(Ctx *c, const Insn *i, const Wave *w, const Access *x, u64 size, u64 *address) {
  i64 base = x->offset + operand_i32(w, &i->in[0]);
  return own_scratch(c, i, w, base, x->vector >= 0 ? w->v + x->vector * LANES : 0, size, address);
}

static int refuse_buffer(Ctx *c, int kind) {
  if (kind != NOT_EMULATED) return 0;
  c->l->status = SWIZZLED;
  c->stop = 1;
  return 1;
}

// ---- Order of accesses of the LDS ----------------------------------------------------------------------

static inline i64 most(i64 a, i64 b) { return a > b ? a : b; }

static inline void issue(Wave *w, int queue) {
  Order *o = w->order;
  if (!o) return;
  o->issued[queue]++;
  o->done[queue] = most(o->done[queue], o->issued[queue] - (queue == VM ? MOST_VM : MOST_LDS));
}

static void run_wait(const Insn *i, Wave *w) {
  Order *o = w->order;
  if (!o) return;
  for (int queue = 0; queue < 2; queue++)
    o->done[queue] = most(o->done[queue], o->issued[queue] - i->x[queue]);
}

// Report the first lane of each kind that accesses bytes whose last write is not before it.
static void check_order(Ctx *c, const Insn *i, const Wave *w, const u64 *address, u64 used, i64 size,
                        int loads) {
  const Launch *l = c->l;
  const Order *orders = l->orders + w->group * l->group_waves;
  u32 limit[2 * MOST_WAVES];
  i64 low = l->granules, high = 0;
  for (i64 k = 0; k < l->group_waves; k++)
    for (int queue = 0; queue < 2; queue++) {
      const Order *o = orders + k;
      i64 bound = o->synced[queue];
      if (k == w->number) bound = queue == VM && !loads ? o->done[VM] : 0xFFFFFFFF;
      limit[2 * k + queue] = (u32)bound;
      if (o->marked[queue] <= bound) continue;
      low = o->low[queue] < low ? o->low[queue] : low;
      high = most(high, o->high[queue]);
    }
  if (low >= high || !used) return;
  // Most accesses are elsewhere.
  u32 place[LANES] ALIGNED, least = ~(u32)0, greatest = 0;
  for (int lane = 0; lane < LANES; lane++) place[lane] = (u32)(address[lane] - w->lds);
  for (u64 rest = ALL & ~used; rest; rest &= rest - 1)
    place[__builtin_ctzll(rest)] = place[__builtin_ctzll(used)];
  for (int lane = 0; lane < LANES; lane++) {
    least = place[lane] < least ? place[lane] : least;
    greatest = place[lane] > greatest ? place[lane] : greatest;
  }
  i64 mask = ((i64)1 << l->shift) - 1, count = size >> l->shift;
  if (greatest >> l->shift < (u64)most(low - count + 1, 0) || least >> l->shift >= (u64)high) return;
  const u64 *owner = l->owners + w->group * l->granules;
  for (u64 rest = used; rest && !c->stop; rest &= rest - 1) {
    int lane = __builtin_ctzll(rest);
    i64 first = place[lane] >> l->shift;
    if (place[lane] & mask || first + count <= low || first >= high) continue;
    for (i64 k = first; k < first + count; k++) {
      u64 mark = owner[k];
      if ((u32)mark <= limit[mark >> 48]) continue;
      i64 kind = (i64)(mark >> 49) == w->number ? NOT_LOADED : RACE;
      report(c, i, kind, (u64)k << l->shift, (i64)(mark >> 32), w, lane);
    }
  }
}

static void mark_writes(Ctx *c, const Insn *i, Wave *w, const u64 *address, u64 used, i64 size, int queue) {
  const Launch *l = c->l;
  Order *o = w->order;
  u64 *owner = l->owners + w->group * l->granules;
  i64 number = o->issued[queue] + 1, mask = ((i64)1 << l->shift) - 1, count = size >> l->shift;
  u64 mark = (u64)(2 * w->number + queue) << 48 | (u64)i->number << 32 | (u32)number;
  if (!used) return;
  if (o->marked[queue] <= o->synced[queue]) o->low[queue] = l->granules, o->high[queue] = 0;
  o->marked[queue] = number;
  Span span = {number, l->granules, 0};
  for (u64 rest = used; rest; rest &= rest - 1) {
    i64 place = (i64)(address[__builtin_ctzll(rest)] - w->lds), first = place >> l->shift;
    if (place & mask) continue;
    span.low = first < span.low ? first : span.low;
    span.high = most(span.high, first + count);
    for (i64 k = first; k < first + count; k++) owner[k] = mark;
  }
  o->low[queue] = span.low < o->low[queue] ? span.low : o->low[queue];
  o->high[queue] = most(o->high[queue], span.high);
  if (queue == VM) w->spans[number % SPANS] = span;
}

// Pass a barrier: accesses that the wave waited for are before those of others.
static void pass_barrier(const Launch *l, Wave *w) {
  Order *o = w->order;
  if (!o) return;
  memcpy(o->synced, o->done, sizeof o->synced);
  if (o->marked[VM] <= o->synced[VM]) return;
  o->low[VM] = l->granules, o->high[VM] = 0;
  for (int n = 0; n < SPANS; n++) {
    const Span *span = w->spans + n;
    if (span->number <= o->synced[VM]) continue;
    o->low[VM] = span->low < o->low[VM] ? span->low : o->low[VM];
    o->high[VM] = most(o->high[VM], span->high);
  }
}

// Lanes that write other bytes than there are.
static u64 changing(const u64 *address, u64 used, i64 size, const u32 *word) {
  u32 old[4 * LANES] ALIGNED, differs[LANES] ALIGNED;
  if (size < 4) {
    u64 changed = 0;
    for (u64 rest = used; rest; rest &= rest - 1) {
      int l = __builtin_ctzll(rest);
      changed |= (u64)(memcmp((const void *)address[l], word + l, (size_t)size) != 0) << l;
    }
    return changed;
  }
  read_words(address, used, (int)size / 4, old);
  memset(differs, 0, sizeof differs);
  for (i64 n = 0; n < size / 4; n++)
    for (int l = 0; l < LANES; l++) differs[l] |= old[n * LANES + l] ^ word[n * LANES + l];
  return packed(differs) & used;
}

static void order_read(Ctx *c, const Insn *i, Wave *w, const u64 *address, u64 used, i64 size) {
  if (w->order && i->number) check_order(c, i, w, address, used, size, 0);
}

static void order_write(Ctx *c, const Insn *i, Wave *w, const u64 *address, u64 used, i64 size,
                        const u32 *word) {
  if (!w->order || !i->number) return;
  u64 changed = changing(address, used, size, word);
  check_order(c, i, w, address, changed, size, 0);
  mark_writes(c, i, w, address, changed, size, LDS);
}

enum { LOAD, STORE, LOAD_SMALL, STORE_SMALL, TO_LDS };

// x: Access, then 7 what, 8 data register, 9 bytes, 10 signed, 11 half, 12 high, 13 offset in the LDS
static void run_memory(Ctx *c, const Insn *i, const Part *part) {
  const Access *x = (const Access *)i->x;
  i64 what = i->x[7], data = i->x[8], size = i->x[9];
  int words = (int)x->words, kind = WHOLE_BUFFER;
  u32 word[16 * LANES] ALIGNED;
  u64 address[LANES] ALIGNED;
  if (x->space == BUFFER) kind = buffer_kind(c, i, part, x);
  if (refuse_buffer(c, kind)) return;
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    Reach r;
    u64 used;
    if (what == STORE) memcpy(word, w->v + data * LANES, 4 * LANES * (size_t)words);
    if (kind == OWN_SCRATCH) {
      used = scratch_buffer(c, i, w, x, (u64)size, address);
    } else if (x->space == BUFFER) {
      reach_buffer(i, w, x, &r);
      memcpy(address, r.address, sizeof address);
      used = w->exec & r.counted;
    } else {
      used = reach(c, i, w, x, (u64)size, address);
    }
    if (kind == BY_WORD && !r.counts) {
      // Word by word.
      u64 moved[LANES];
      used = 0;
      for (int k = 0; k < words; k++) {
        u64 inside = 0;
        for (int l = 0; l < LANES; l++) {
          inside |= (u64)(r.within[l] + 4 * k < r.limit) << l;
          moved[l] = address[l] + 4 * (u64)k;
        }
        u64 good = usable(c, i, w, moved, size < 4 ? (u64)size : 4, inside & w->exec);
        if (what == LOAD || what == TO_LDS) read_words(moved, good, 1, word + k * LANES);
        if (what == STORE) write_words(moved, good, 1, word + k * LANES);
        used = good;
      }
    } else {
      if (in_map(x)) used = usable(c, i, w, address, (u64)size, used);
      if (x->space == LOCAL) {
        if (what == STORE_SMALL)
          for (int l = 0; l < LANES; l++) word[l] = w->v[data * LANES + l] >> (i->x[12] ? 16 : 0);
        if (what == STORE || what == STORE_SMALL) order_write(c, i, w, address, used, size, word);
        else order_read(c, i, w, address, used, size);
      }
      if (what == LOAD || what == TO_LDS) read_words(address, used, words, word);
      if (what == STORE) write_words(address, used, words, word);
    }
    if (what == LOAD) {
      for (int k = 0; k < words; k++) put(w, data + k, word + k * LANES, w->exec, w->active);
    } else if (what == LOAD_SMALL) {
      u32 *old = w->v + data * LANES;
      for (int l = 0; l < LANES; l++) {
        u32 value = 0;
        if (used >> l & 1) memcpy(&value, (const void *)address[l], (size_t)size);
        if (i->x[10]) value = size == 2 ? (u32)(i32)(i16)value : (u32)(i32)(i8)value;
        if (i->x[11]) {
          value &= 0xFFFF;
          value = i->x[12] ? value << 16 | (old[l] & 0xFFFF) : value | (old[l] & 0xFFFF0000);
        }
        word[l] = value;
      }
      put(w, data, word, w->exec, w->active);
    } else if (what == STORE_SMALL) {
      for (u64 rest = used; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        u32 value = w->v[data * LANES + l] >> (i->x[12] ? 16 : 0);
        memcpy((void *)address[l], &value, (size_t)size);
      }
    } else if (what == TO_LDS) {
      u64 bad = 0;
      for (int l = 0; l < LANES; l++) {
        i64 place = (i64)(w->s[M0] & 0x3FFFF) + i->x[13] + l * size;
        if (place < 0 || place + size > c->l->lds_bytes) bad |= (u64)1 << l;
        address[l] = (u64)place + w->lds;
      }
      bad &= w->exec;
      if (bad) report(c, i, LOADED_RANGE, 0, size, w, __builtin_ctzll(bad));
      if (w->order && i->number) {
        // A load is outstanding even if it changes nothing.
        check_order(c, i, w, address, changing(address, w->exec & ~bad, size, word), size, 1);
        mark_writes(c, i, w, address, w->exec & ~bad, size, VM);
      }
      write_words(address, w->exec & ~bad, words, word);
    }
  }
}

// DS_READ2 and DS_WRITE2: x[7] load, x[8] first data, x[9] second data, x[10] second offset
static void run_two(Ctx *c, const Insn *i, const Part *part) {
  Access first = *(const Access *)i->x, second = first;
  second.offset = i->x[10];
  int words = (int)first.words;
  u32 word[4 * LANES] ALIGNED;
  u64 address[LANES] ALIGNED, size = 4 * (u64)words;
  // Faults and writes of the first access come before those of the second.
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    const u32 *from = w->v + i->x[8] * LANES;
    u64 used = reach(c, i, w, &first, size, address);
    if (i->x[7]) {
      order_read(c, i, w, address, used, (i64)size);
    } else {
      order_write(c, i, w, address, used, (i64)size, from);
      write_words(address, used, words, from);
    }
  }
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    if (i->x[7]) {
      u64 used = reach(c, i, w, &first, size, address);
      read_words(address, used, words, word);
      used = reach(c, i, w, &second, size, address);
      order_read(c, i, w, address, used, (i64)size);
      read_words(address, used, words, word + words * LANES);
      for (int k = 0; k < 2 * words; k++) put(w, i->x[8] + k, word + k * LANES, w->exec, w->active);
    } else {
      u64 used = reach(c, i, w, &second, size, address);
      order_write(c, i, w, address, used, (i64)size, w->v + i->x[9] * LANES);
      write_words(address, used, words, w->v + i->x[9] * LANES);
    }
  }
}

// DS_READ_B64_TR: x[7] bytes of a value, x[8] data register. 16 lanes read rows of 16 values; each
// lane gets a column.
static void run_transposed(Ctx *c, const Insn *i, const Part *part) {
  const Access *x = (const Access *)i->x;
  u32 word[2 * LANES] ALIGNED, result[2][LANES] ALIGNED;
  u64 address[LANES] ALIGNED;
  int each = 8 / (int)i->x[7], bits = 64 / each;
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    u64 used = reach(c, i, w, x, 8, address);
    order_read(c, i, w, address, used, 8);
    read_words(address, used, 2, word);
    for (int l = 0; l < LANES; l++) {
      int group = l / 16 * 16, column = l % 16;
      u64 turned = 0;
      for (int row = 0; row < each; row++) {
        int source = group + 16 / each * row + column / each;
        u64 values = word[source] | (u64)word[LANES + source] << 32;
        turned |= (values >> (column % each * bits) & (((u64)1 << bits) - 1)) << (row * bits);
      }
      result[0][l] = (u32)turned;
      result[1][l] = (u32)(turned >> 32);
    }
    put(w, i->x[8], result[0], w->exec, w->active);
    put(w, i->x[8] + 1, result[1], w->exec, w->active);
  }
}

// S_LOAD and S_BUFFER_LOAD: x: base or -1, target or -1, words, buffer, offset, register or -1,
// bytes of a number smaller than a word or 0, signed
static void run_scalar_memory(Ctx *c, const Insn *i, const Part *part) {
  const i64 *x = i->x;
  int words = (int)x[2], small = (int)x[6], step = x[3] ? 1 : words, size = small ? small : 4 * step;
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    u32 value[16] = {0};
    i64 distance = x[4] + (x[5] >= 0 ? w->s[x[5]] : 0), records = 0;
    u64 start = x[0] < 0 ? 0 : pair_of(w, x[0]);
    if (x[3]) start &= 0xFFFFFFFFFFFF, records = w->s[x[0] + 2];
    u64 address = start + (u64)distance;
    // The two lowest bits of a word's address are ignored.
    if (!small) address &= ~(u64)3;
    // Of a buffer each word by itself: those out of its range are 0, whatever lies there.
    for (int k = 0; k < words; k += step) {
      u64 at = address + 4 * (u64)k;
      int inside = !x[3] || distance + 4 * k + (small ? small - 1 : 0) < records;
      int good = inside && mapped(c, at, (u64)size);
      if (inside && !good) report(c, i, UNMAPPED, at, size, w, -1);
      if (good) memcpy(value + k, (const void *)at, (size_t)size);
    }
    if (x[7]) value[0] = small == 2 ? (u32)(i16)value[0] : (u32)(i8)value[0];
    if (x[1] < 0) continue;
    memcpy(w->s + x[1], value, 4 * (size_t)words);
    if (x[1] <= EXEC + 1 && x[1] + words > EXEC) update_exec(w);
  }
}

enum { SWAP, ADD, SUB, SMIN, UMIN, SMAX, UMAX, AND, OR, XOR, ADD_F32, PK_ADD_F16, PK_ADD_BF16, ADD_F64,
       ADD_X2, SWAP_X2, INC, DEC, INC_X2, DEC_X2, SUB_X2, AND_X2, OR_X2, XOR_X2, SMIN_X2, SMAX_X2, UMIN_X2,
       UMAX_X2, CMPSWAP, CMPSWAP_X2 };

static u64 updated(i64 what, u64 old, u64 value) {
  u32 a = (u32)old, b = (u32)value;
  switch (what) {
    case ADD: return (u32)(a + b);
    case SUB: return (u32)(a - b);
    case SMIN: return (i32)a < (i32)b ? a : b;
    case UMIN: return a < b ? a : b;
    case SMAX: return (i32)a > (i32)b ? a : b;
    case UMAX: return a > b ? a : b;
    case AND: return a & b;
    case OR: return a | b;
    case XOR: return a ^ b;
    case ADD_F32: return of_f32(f32_of(a) + f32_of(b));
    case PK_ADD_F16: {
      u32 low = of_f16((f16)((f32)f16_of((u16)a) + (f32)f16_of((u16)b)));
      return low | (u32)of_f16((f16)((f32)f16_of(a >> 16) + (f32)f16_of(b >> 16))) << 16;
    }
    case PK_ADD_BF16: {
      u32 low = bf16_bits(from_bf16(a) + from_bf16(b));
      return low | bf16_bits(from_bf16(a >> 16) + from_bf16(b >> 16)) << 16;
    }
    case ADD_F64: return of_f64(f64_of(old) + f64_of(value));
    case INC: return a >= b ? 0 : a + 1;
    case DEC: return !a || a > b ? b : a - 1;
    case INC_X2: return old >= value ? 0 : old + 1;
    case DEC_X2: return !old || old > value ? value : old - 1;
    case SUB_X2: return old - value;
    case AND_X2: return old & value;
    case OR_X2: return old | value;
    case XOR_X2: return old ^ value;
    case SMIN_X2: return (i64)old < (i64)value ? old : value;
    case SMAX_X2: return (i64)old > (i64)value ? old : value;
    case UMIN_X2: return old < value ? old : value;
    case UMAX_X2: return old > value ? old : value;
    case ADD_X2: return old + value;
    default: return value;
  }
}

// Addresses of an atomic operation, and the lanes that may use them.
static u64 reach_atomic(Ctx *c, const Insn *i, Wave *w, int kind, u64 *address) {
  const Access *x = (const Access *)i->x;
  u64 used, size = 4 * (u64)x->words;
  if (kind == OWN_SCRATCH) {
    used = scratch_buffer(c, i, w, x, size, address);
  } else if (x->space == BUFFER) {
    Reach r;
    reach_buffer(i, w, x, &r);
    memcpy(address, r.address, sizeof r.address);
    used = w->exec & r.counted;
    if (kind == BY_WORD && !r.counts) {
      u64 inside = 0;
      for (int l = 0; l < LANES; l++) inside |= (u64)(r.within[l] + 4 * (x->words - 1) < r.limit) << l;
      used &= inside;
    }
  } else {
    used = reach(c, i, w, x, size, address);
  }
  if (in_map(x)) used = usable(c, i, w, address, size, used);
  if (x->space == LOCAL) order_read(c, i, w, address, used, (i64)size);
  return used;
}

// x: Access, 7 what, 8 source, 9 target, 10 returns, 11 compared
static void run_atomic(Ctx *c, const Insn *i, const Part *part) {
  const Access *x = (const Access *)i->x;
  int words = (int)x->words, kind = WHOLE_BUFFER;
  u64 address[LANES] ALIGNED, size = 4 * (u64)words;
  if (x->space == BUFFER) kind = buffer_kind(c, i, part, x);
  if (refuse_buffer(c, kind)) return;
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    u32 old[2][LANES] ALIGNED;
    u64 used = reach_atomic(c, i, w, kind, address), crooked = 0;
    memset(old, 0, sizeof old);
    for (u64 rest = used; rest; rest &= rest - 1) {
      int l = __builtin_ctzll(rest);
      if (address[l] & (size - 1)) crooked |= (u64)1 << l;
    }
    if (crooked) {
      int lane = __builtin_ctzll(crooked);
      // Faults of other kinds come first, even those of later waves.
      u64 others[LANES] ALIGNED;
      for (int k = n + 1; k < part->n && !c->stop; k++)
        reach_atomic(c, i, &c->waves[part->rows[k]], kind, others);
      report(c, i, x->space == LOCAL ? CROOKED_LDS : CROOKED, address[lane], (i64)size, w, lane);
      used &= ~crooked;
    }
    const u32 *from = w->v + i->x[8] * LANES;
    for (u64 rest = used; rest; rest &= rest - 1) {
      int l = __builtin_ctzll(rest);
      u64 value = words == 2 ? from[l] | (u64)from[LANES + l] << 32 : from[l], before = 0;
      memcpy(&before, (const void *)address[l], (size_t)size);
      u64 after = updated(i->x[7], before, value);
      if (i->x[7] >= CMPSWAP) {
        const u32 *than = w->v + i->x[11] * LANES;
        u64 compared = words == 2 ? than[l] | (u64)than[LANES + l] << 32 : than[l];
        if (before != compared) after = before;
      }
      memcpy((void *)address[l], &after, (size_t)size);
      old[0][l] = (u32)before;
      old[1][l] = (u32)(before >> 32);
    }
    if (i->x[10])
      for (int k = 0; k < words; k++) put(w, i->x[9] + k, old[k], w->exec, w->active);
  }
}

// ---- Control ------------------------------------------------------------------------------------------

enum {
  NOTHING, RUN_VECTOR, RUN_SCALAR, RUN_PACKED, RUN_MIX, RUN_DOT, RUN_READLANE, RUN_WRITELANE, RUN_SWAP,
  RUN_PERMUTE, RUN_SWIZZLE, RUN_MATRIX, RUN_DUAL, RUN_ROW, RUN_EXCHANGE, RUN_INTEGERS, RUN_COUNT,
  RUN_GETPC, RUN_WAIT,
  LAST_LOCAL = RUN_WAIT,
  RUN_MEMORY, RUN_TWO, RUN_TRANSPOSED, RUN_SCALAR_MEMORY, RUN_ATOMIC, RUN_FALLBACK, RUN_REFUSED,
  FIRST_END = 32,
  BRANCH_SCC0 = FIRST_END, BRANCH_SCC1, BRANCH_VCCZ, BRANCH_VCCNZ, BRANCH_EXECZ, BRANCH_EXECNZ, BRANCH,
  BARRIER, END, JUMP
};

static void run_local(Ctx *c, const Insn *i, Wave *w) {
  switch (i->handler) {
    case RUN_VECTOR: run_vector(c, i, w); break;
    case RUN_SCALAR: run_scalar(i, w); break;
    case RUN_PACKED: run_packed(i, w); break;
    case RUN_MIX: run_mix(i, w); break;
    case RUN_DOT: run_dot(i, w); break;
    case RUN_READLANE: run_readlane(i, w); break;
    case RUN_WRITELANE: run_writelane(i, w); break;
    case RUN_SWAP: run_swap(i, w); break;
    case RUN_PERMUTE: run_permute(i, w), issue(w, LDS); break;
    case RUN_SWIZZLE: run_swizzle(c, i, w), issue(w, LDS); break;
    case RUN_MATRIX: run_matrix(c, i, w); break;
    case RUN_DUAL: run_dual(c, i, w); break;
    case RUN_ROW: run_row(i, w); break;
    case RUN_EXCHANGE: run_exchange(i, w); break;
    case RUN_INTEGERS: run_integers(i, w); break;
    case RUN_COUNT: issue(w, (int)i->queue - 1); break;
    case RUN_GETPC: set_pair(w, i->dst, c->l->entry + (u64)i->x[0]); break;
    case RUN_WAIT: run_wait(i, w); break;
  }
}

static void run_fallback(Ctx *c, const Insn *i, const Part *part) {
  Launch *l = c->l;
  for (int n = 0; n < part->n; n++) l->scc[part->rows[n]] = (u8)c->waves[part->rows[n]].scc;
  if (l->fallback(i - l->insns, part->n, part->rows)) {
    l->status = FAILED;
    c->stop = 1;
    return;
  }
  for (int n = 0; n < part->n; n++) {
    Wave *w = &c->waves[part->rows[n]];
    w->scc = l->scc[part->rows[n]];
    update_exec(w);
    // NumPy does not record the span of a load to the LDS, so assume all of it.
    if (w->order && i->number && i->queue == VM + 1) {
      i64 number = w->order->marked[VM];
      w->spans[number % SPANS] = (Span){number, 0, l->granules};
    }
  }
}

typedef struct {
  Part *items;
  int count;
} Parts;

typedef struct {
  Ctx c;
  Parts ready, waiting;
  i32 **free;
  int free_count;
  i64 *targets, *here;  // of a jump's waves, twice; waves at a barrier, by workgroup
  void *pieces[9];
  int piece_count, no_memory;
} Run;

static i32 *room_of(Run *r) { return r->free[--r->free_count]; }
static void give_back(Run *r, i32 *rows) { r->free[r->free_count++] = rows; }
static void append(Parts *parts, Part part) { parts->items[parts->count++] = part; }

// Those at the lowest place, in the order in which they came there.
static Part next(Run *r) {
  Parts *ready = &r->ready;
  i64 lowest = ready->items[0].pc;
  for (int n = 1; n < ready->count; n++)
    if (ready->items[n].pc < lowest) lowest = ready->items[n].pc;
  Part found = {lowest, 0, 0};
  int kept = 0;
  for (int n = 0; n < ready->count; n++) {
    Part part = ready->items[n];
    if (part.pc != lowest) {
      ready->items[kept++] = part;
    } else if (!found.rows) {
      found = part;
    } else {
      memcpy(found.rows + found.n, part.rows, sizeof(i32) * (size_t)part.n);
      found.n += part.n;
      give_back(r, part.rows);
    }
  }
  ready->count = kept;
  return found;
}

static void split_part(Run *r, Part part, const u8 *taken, i64 target) {
  Part stay = {part.pc, 0, room_of(r)}, away = {target, 0, room_of(r)};
  for (int n = 0; n < part.n; n++) {
    Part *to = taken[n] ? &away : &stay;
    to->rows[to->n++] = part.rows[n];
  }
  give_back(r, part.rows);
  if (stay.n) append(&r->ready, stay); else give_back(r, stay.rows);
  if (away.n) append(&r->ready, away); else give_back(r, away.rows);
}

static int compare(const void *a, const void *b) {
  i64 x = *(const i64 *)a, y = *(const i64 *)b;
  return x < y ? -1 : x > y;
}

static void jump(Run *r, Part part, const Insn *i, i64 after) {
  Launch *l = r->c.l;
  i64 *targets = r->targets, *sorted = targets + part.n;
  for (int n = 0; n < part.n; n++) {
    Wave *w = &r->c.waves[part.rows[n]];
    targets[n] = i->x[0] == 2 ? i->x[1] : (i64)(scalar_value(w, &i->in[0]) - l->entry);
    sorted[n] = targets[n];
    if (i->x[0]) set_pair(w, i->dst, l->entry + (u64)after);
  }
  qsort(sorted, (size_t)part.n, sizeof *sorted, compare);
  for (int n = 0; n < part.n; n++) {
    if (n && sorted[n] == sorted[n - 1]) continue;
    Part some = {sorted[n], 0, room_of(r)};
    for (int k = 0; k < part.n; k++)
      if (targets[k] == sorted[n]) some.rows[some.n++] = part.rows[k];
    append(&r->ready, some);
  }
  give_back(r, part.rows);
}

static void finish(Run *r, Part part, const Insn *i) {
  Launch *l = r->c.l;
  u8 *taken = (u8 *)(r->c.seen + l->insn_count);
  for (int n = 0; n < part.n; n++) {
    const Wave *w = &r->c.waves[part.rows[n]];
    switch (i->handler) {
      case BRANCH_SCC0: taken[n] = !w->scc; break;
      case BRANCH_SCC1: taken[n] = w->scc != 0; break;
      case BRANCH_VCCZ: taken[n] = mask_of(w, VCC) == 0; break;
      case BRANCH_VCCNZ: taken[n] = mask_of(w, VCC) != 0; break;
      case BRANCH_EXECZ: taken[n] = mask_of(w, EXEC) == 0; break;
      case BRANCH_EXECNZ: taken[n] = mask_of(w, EXEC) != 0; break;
    }
  }
  switch (i->handler) {
    case BRANCH:
      part.pc = i->x[1];
      append(&r->ready, part);
      break;
    case BARRIER: append(&r->waiting, part); break;
    case END:
      for (int n = 0; n < part.n; n++) {
        Wave *w = &r->c.waves[part.rows[n]];
        l->live[w->group]--;
        if (w->order) memcpy(w->order->done, w->order->issued, sizeof w->order->done);
      }
      give_back(r, part.rows);
      break;
    case JUMP: jump(r, part, i, part.pc); break;
    default: split_part(r, part, taken, i->x[1]);
  }
}

// Let workgroups go on of which all waves are at a barrier.
static void release(Run *r) {
  Launch *l = r->c.l;
  i64 *here = r->here;
  memset(here, 0, sizeof *here * (size_t)l->groups);
  for (int n = 0; n < r->waiting.count; n++)
    for (int k = 0; k < r->waiting.items[n].n; k++) here[r->c.waves[r->waiting.items[n].rows[k]].group]++;
  for (i64 n = 0; n < l->count; n++) {
    Wave *w = &r->c.waves[n];
    if (here[w->group] && here[w->group] == l->live[w->group]) pass_barrier(l, w);
  }
  int count = r->waiting.count, kept = 0;
  for (int n = 0; n < count; n++) {
    Part part = r->waiting.items[n];
    Part go = {part.pc, 0, room_of(r)}, stay = {part.pc, 0, room_of(r)};
    for (int k = 0; k < part.n; k++) {
      i64 group = r->c.waves[part.rows[k]].group;
      Part *to = here[group] == l->live[group] ? &go : &stay;
      to->rows[to->n++] = part.rows[k];
    }
    give_back(r, part.rows);
    if (go.n) append(&r->ready, go); else give_back(r, go.rows);
    if (stay.n) r->waiting.items[kept++] = stay; else give_back(r, stay.rows);
  }
  r->waiting.count = kept;
}

static void fail(Run *r, i64 status, i64 insn) {
  Launch *l = r->c.l;
  if (!l->status) l->status = status;
  l->status_insn = insn;
  r->c.stop = 1;
}

// Follow the outstanding loads of waves through a block; 0 if that ends the launch.
static int pass_block(Run *r, i64 first, const Part *part) {
  Launch *l = r->c.l;
  i64 block = l->block_of[first];
  for (int n = 0; n < part->n; n++) {
    Wave *w = &r->c.waves[part->rows[n]];
    i64 next = block >= 0 && w->state < l->states ? l->passages[w->state * l->blocks + block] : -1;
    if (next < 0) next = l->pass(first, w->state, part->rows[n]);
    if (next < 0) {
      l->status = FAILED;
      r->c.stop = 1;
      return 0;
    }
    w->state = next;
  }
  return 1;
}

static void run_block(Run *r, Part part) {
  Launch *l = r->c.l;
  i64 at = part.pc >= 0 && part.pc < l->code_size && part.pc % 4 == 0 ? l->places[part.pc / 4] : -1;
  if (at < 0) {
    l->status_insn = part.pc;
    l->status = OUTSIDE;
    r->c.stop = 1;
    return;
  }
  if (!pass_block(r, at, &part)) return;
  i64 first = at, end = at;
  // The block ends with a branch, or before an instruction to which one goes.
  while (l->insns[end].handler < FIRST_END && !l->insns[end].stops) end++;
  while (at <= end && !r->c.stop) {
    i64 stop = at;
    while (stop <= end && l->insns[stop].handler <= LAST_LOCAL) stop++;
    if (stop > at) {
      for (int n = 0; n < part.n; n++) {
        Wave *w = &r->c.waves[part.rows[n]];
        for (const Insn *i = l->insns + at; i < l->insns + stop; i++) run_local(&r->c, i, w);
      }
      at = stop;
      continue;
    }
    const Insn *i = l->insns + at;
    switch (i->handler) {
      case RUN_MEMORY: run_memory(&r->c, i, &part); break;
      case RUN_TWO: run_two(&r->c, i, &part); break;
      case RUN_TRANSPOSED: run_transposed(&r->c, i, &part); break;
      case RUN_SCALAR_MEMORY: run_scalar_memory(&r->c, i, &part); break;
      case RUN_ATOMIC: run_atomic(&r->c, i, &part); break;
      case RUN_FALLBACK: run_fallback(&r->c, i, &part); break;
      case RUN_REFUSED: fail(r, UNSUPPORTED, at); return;
    }
    if (r->c.stop) {
      l->status_insn = at;
      return;
    }
    if (i->handler >= FIRST_END) break;
    if (i->queue && i->handler != RUN_FALLBACK)
      for (int n = 0; n < part.n; n++) issue(&r->c.waves[part.rows[n]], (int)i->queue - 1);
    at++;
  }
  l->executed += (end - first + 1) * part.n;
  if (l->executed > l->limit) {
    fail(r, ENDLESS, first);
    return;
  }
  const Insn *last = l->insns + end;
  part.pc = last->pc + last->size;
  if (last->handler < FIRST_END) append(&r->ready, part);
  else finish(r, part, last);
}

static void run_waves(Run *r, i32 *rows, Span *spans) {
  Launch *l = r->c.l;
  size_t count = (size_t)l->count, rooms = 2 * count + 4;
  for (size_t n = 0; n < rooms; n++) r->free[n] = rows + n * count;
  r->free_count = (int)rooms;
  Part all = {l->start, (int)count, room_of(r)};
  for (size_t n = 0; n < count; n++) {
    Wave *w = &r->c.waves[n];
    w->v = l->v + n * (size_t)l->registers * LANES;
    w->s = l->s + n * 128;
    w->group = l->wave_groups[n];
    w->number = l->wave_numbers[n];
    w->state = 0;
    w->order = l->granules ? l->orders + w->group * l->group_waves + w->number : 0;
    w->spans = spans + n * SPANS;
    w->lds = l->lds_start + (u64)(w->group * l->lds_row);
    w->scc = l->scc[n];
    w->exec = ~mask_of(w, EXEC);
    update_exec(w);
    all.rows[n] = (i32)n;
  }
  append(&r->ready, all);
  while (r->ready.count && !r->c.stop) {
    run_block(r, next(r));
    if (!r->ready.count && !r->c.stop) release(r);
  }
  if (r->waiting.count && !r->c.stop) {
    l->status = AT_BARRIER;
    l->status_insn = r->waiting.items[0].pc;
  }
  for (size_t n = 0; n < count; n++) l->scc[n] = (u8)r->c.waves[n].scc;
}

// Zeroed memory for a run; 0 if there is none, or was none before.
static void *allocate(Run *r, size_t bytes) {
  size_t size = (bytes + 64) / 64 * 64;
  void *piece = r->no_memory ? 0 : aligned_alloc(64, size);
  if (!piece) {
    r->no_memory = 1;
    return 0;
  }
  r->pieces[r->piece_count++] = piece;
  return memset(piece, 0, size);
}

void qola_run(Launch *l) {
  Run r;
  size_t count = (size_t)l->count, rooms = 2 * count + 4;
  memset(&r, 0, sizeof r);
  r.c.l = l;
  r.c.waves = allocate(&r, sizeof(Wave) * count);
  r.c.seen = allocate(&r, sizeof *r.c.seen * ((size_t)l->insn_count + count));
  r.ready.items = allocate(&r, sizeof(Part) * (count + 2));
  r.waiting.items = allocate(&r, sizeof(Part) * (count + 2));
  r.free = allocate(&r, sizeof(i32 *) * rooms);
  r.targets = allocate(&r, sizeof(i64) * 2 * count);
  r.here = allocate(&r, sizeof(i64) * (size_t)l->groups);
  i32 *rows = allocate(&r, sizeof(i32) * rooms * count);
  Span *spans = allocate(&r, sizeof *spans * SPANS * count);
  if (r.no_memory) l->status = NO_MEMORY;
  else run_waves(&r, rows, spans);
  for (int n = 0; n < r.piece_count; n++) free(r.pieces[n]);
}
