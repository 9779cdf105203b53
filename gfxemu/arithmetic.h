// Arithmetic of operations: fused, rounded and saturated as the ISA says.

#define QOLA_CONSTANTS
#include "operations.h"
#undef QOLA_CONSTANTS

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
// The sum of differences of unsigned numbers of some bits.
static inline u32 sad(u32 a, u32 b, int bits) {
  u32 sum = 0, ones = 0xFFFFFFFF >> (32 - bits);
  for (int at = 0; at < 32; at += bits) {
    u32 x = a >> at & ones, y = b >> at & ones;
    sum += x > y ? x - y : y - x;
  }
  return sum;
}
static inline u32 msad(u32 a, u32 b) {
  u32 sum = 0;
  for (int at = 0; at < 32; at += 8) sum += b >> at & 0xFF ? sad(a >> at & 0xFF, b >> at & 0xFF, 8) : 0;
  return sum;
}
// The sum of products of parts of registers; bits 0 and 1 of `signs` say which have a sign.
static inline i64 dot(u32 a, u32 b, int bits, i64 signs) {
  i64 sum = 0;
  for (int at = 0; at < 32; at += bits) {
    u32 x = a << (32 - bits - at), y = b << (32 - bits - at);
    i64 left = signs & 1 ? (i32)x >> (32 - bits) : (i64)(x >> (32 - bits));
    sum += left * (signs & 2 ? (i32)y >> (32 - bits) : (i64)(y >> (32 - bits)));
  }
  return sum;
}
static inline f32 dot2_f16(u32 a, u32 b, f32 c) {
  f64 total = (f64)c + (f64)(f32)f16_of((u16)a) * (f64)(f32)f16_of((u16)b);
  return (f32)(total + (f64)(f32)f16_of((u16)(a >> 16)) * (f64)(f32)f16_of((u16)(b >> 16)));
}
static inline f32 dot2_bf16(u32 a, u32 b, f32 c) {
  f64 total = (f64)c + (f64)from_bf16(a & 0xFFFF) * (f64)from_bf16(b & 0xFFFF);
  return (f32)(total + (f64)from_bf16(a >> 16) * (f64)from_bf16(b >> 16));
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
// 2 to a power, in steps of f64 that every machine rounds alike.
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
// 53 bits of 2 / pi: a segment of them, behind those that a large angle makes irrelevant.
static inline f64 part_of_2_over_pi(f64 angle, u32 segment) {
  static const u32 words[] = {TWO_OVER_PI};
  const u32 count = sizeof words / sizeof *words;
  i32 exponent = (i32)(of_f64(angle) >> 52 & 0x7FF), shift = (i32)segment * 53;
  if (exponent > 1077) shift += exponent - 1077;
  u64 bits = 0;
  for (u32 n = 0; n < 53; n++) {
    u32 at = (u32)shift + n;
    bits = bits << 1 | (at / 32 < count ? words[at / 32] >> (31 - at % 32) & 1 : 0);
  }
  return __builtin_ldexp((f64)bits, -53 - shift + (exponent >= 1968 ? 128 : 0));
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
// The three steps of a division. The last one reverses the scaling that its size implies: CDNA's
// pseudocode has one factor, with which no division comes out right; this is RDNA's.
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
