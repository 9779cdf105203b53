// Runs waves of a kernel.
//
// An instruction is a record that gfxemu/encode.py makes; `handler` says how it runs,
// and `op` is a function of operations.h, which is generated from the table of operations. Waves at
// one place run together; of all places where waves stand, the lowest goes on first: waves that left
// a loop early wait for the others behind it, and go on with them. Instructions that only touch
// registers run wave by wave, since no other wave sees them; each access of memory runs for all waves
// before the next instruction does.
//
// It is compiled for waves of 64 lanes (CDNA), and for those of 32 (RDNA): -DLANES=64, -DLANES=32.

#include "engine.h"

#include "arithmetic.h"

#if LANES == 64
#define RUN qola_run_64
#else
#define RUN qola_run_32
#endif
enum { VCC = 106, M0 = 124, EXEC = 126 };
// A mask with all lanes.
#define ALL (~(u64)0 >> (64 - LANES))
#define ALIGNED __attribute__((aligned(64)))

typedef struct {
  u8 source[LANES];
  u64 valid, enabled, zeros, inactive;  // inactive: whether lanes that are off are read
} Dpp;

typedef struct {
  i64 kind, insn, value, size, group, number, lane;
} Fault;

// Accesses of a wave by queue, as gfxemu/races.py has them: issued, done, done and issued at the
// last barrier, and the last mark with the granules of marks that nobody else may touch.
typedef struct {
  i64 issued[2], done[2], synced[2], met[2], marked[2], low[2], high[2];
} Order;

// Registers that an instruction reads or writes, as gfxemu/check.py has them.
enum { READS_SCALARS, READS_VECTORS, WRITES_SCALARS, WRITES_VECTORS };
typedef struct {
  i64 kind, number, first, count;
} Use;

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
  i64 fnuz;  // formats of floats of 8 bits
  u64 lds_start;
  i64 lds_row, lds_bytes;
  u64 scratch_start;
  i64 scratch_row;
  const u64 *starts, *ends;
  i64 allocations;
  u64 entry;
  i64 start;  // pc of the first instruction: code in front of it has a lower one
  i64 strict, hints, limit, executed;  // strict: the first fault ends it, but hints do not
  i64 (*serve)(i64 insn);  // printf.py: answer calls of the host
  // gfxemu/waits.py: states of waves by state and block, -1 for those that `pass` computes.
  const i32 *passages;
  i64 states, blocks;
  const i32 *block_of;  // by the first instruction; or -1
  i64 (*pass)(i64 insn, i64 state, i64 row);
  // gfxemu/races.py: a mark for each granule of the LDS, and accesses of waves
  u64 *owners;
  Order *orders;
  i64 granules, shift;
  // Of a checked launch, else 0: which lanes of registers, scalars, bytes of the LDS and of each
  // allocation were written, uses by instruction, and marks of reads by wave and granule
  u64 *known_v;
  u8 *known_s, *lds_written;
  const u64 *written;
  const Use *uses;
  const i64 *first_uses;
  u64 *readers;
  // Results
  i64 status, status_insn, fault_count, fault_room;
  Fault *faults;
  Fault trap;
} Launch;

enum { DONE, OUTSIDE, UNSUPPORTED, ENDLESS, AT_BARRIER, STRICT, FAILED, SWIZZLED, NO_MEMORY, TRAPPED };
enum { UNMAPPED = 1, LDS_RANGE, SCRATCH_RANGE, CROOKED, CROOKED_LDS, LOADED_RANGE, RACE, NOT_LOADED, TRAP,
       UNKNOWN_REGISTER, UNKNOWN_MEMORY, UNKNOWN_LDS, CROOKED_PLACE, CROOKED_PLACE_LDS };

typedef struct {
  Launch *l;
  Wave *waves;
  u16 *seen;
  u64 low, high;  // the allocation that was found last
  u64 clocks;     // reads of the time
  int stop;
  f32 formats[2 * 256];  // values of FP8 and BF8
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

static inline u64 pair_of_lane(const Wave *w, i64 reg, int lane) {
  return w->v[reg * LANES + lane] | (u64)w->v[(reg + 1) * LANES + lane] << 32;
}

// A bit for each lane: two scalar registers for 64 lanes, one for 32.
static inline u64 mask_of(const Wave *w, i64 reg) { return LANES == 64 ? pair_of(w, reg) : w->s[reg]; }

static inline void set_mask(Wave *w, i64 reg, u64 value) {
  if (LANES == 64) set_pair(w, reg, value);
  else w->s[reg] = (u32)value;
}

// Lanes of a mask as 0 or all ones, in halves whose shifts have 32 bits.
static void expand(u64 mask, u32 *out) {
  for (int at = 0; at < LANES; at += 32) {
    u32 half = (u32)(mask >> at);
    for (int l = 0; l < 32; l++) out[at + l] = -(half >> l & 1);
  }
}

static u64 packed(const u32 *flags) {
  u64 mask = 0;
  for (int at = 0; at < LANES; at += 32) {
    u32 half = 0;
    for (int l = 0; l < 32; l++) half |= flags[at + l] ? 1u << l : 0;
    mask |= (u64)half << at;
  }
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
  qola_vector_ops[i->op](p, out, flags, i, LANES);
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
    qola_vector_ops[part->op](p, out[which], 0, part, LANES);
  }
  for (int which = 0; which < 2; which++) put(w, parts[which].dst, out[which], w->exec, w->active);
}

static void run_scalar(const Insn *i, Wave *w) {
  u64 exec = pair_of(w, EXEC);
  u32 scc = w->scc;
  u64 in[3];
  for (int n = 0; n < 3; n++) in[n] = scalar_value(w, &i->in[n]);
  u64 value = qola_scalar_ops[i->op](in[0], in[1], in[2], &scc, &exec);
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
    qola_vector_ops[i->op](p, out, flags, i, LANES);
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

// An operand of V_MAD_MIX: x[3n] half, x[3n+1] shift, x[3n+2] keep and flip.
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

// Cycles since some time: here instructions. x: bits of them from an offset on, or 0 for all 64.
static void run_clock(Ctx *c, const Insn *i, Wave *w) {
  u64 now = (u64)c->l->executed + ++c->clocks;
  if (i->x[0]) set_scalar(w, i->dst, (u32)extract_u(now, (u32)i->x[1], (u32)i->x[0], 64));
  else set_pair(w, i->dst, now), update_exec(w);
}

// ---- Matrices ----------------------------------------------------------------------------------------

// Vectors of the compiler, which splits them where the processor has smaller ones.
enum { WIDTH = 16 };
typedef f32 Floats __attribute__((vector_size(4 * WIDTH)));

static inline Floats load_floats(const f32 *from) {
  Floats value;
  memcpy(&value, from, sizeof value);
  return value;
}
static inline Floats fused(f32 a, Floats b, Floats c) {
  for (int n = 0; n < WIDTH; n++) c[n] = __builtin_fmaf(a, b[n], c[n]);
  return c;
}

enum { OF_F32, OF_F16, OF_BF16, OF_FP8, OF_BF8 };

// Elements as f32, [depth][rows], of which each group of lanes has some: gfxemu/encode_matrix.py.
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
      for (int n = 0; n < vectors; n++) total[i][n] = (Floats){0};
    for (int k = 0; k < depth; k += step) {
      Floats sum[4][MOST];
      for (int i = 0; i < 4; i++)
        for (int n = 0; n < vectors; n++) sum[i][n] = (Floats){0};
      for (int j = k; j < k + step; j++)
        for (int i = 0; i < 4; i++)
          for (int n = 0; n < vectors; n++)
            sum[i][n] = fused(a[j * rows + row + i], load_floats(b + j * rows + n * WIDTH), sum[i][n]);
      for (int i = 0; i < 4; i++)
        for (int n = 0; n < vectors; n++) total[i][n] += sum[i][n];
    }
    for (int i = 0; i < 4; i++) {
      int above = (row + i) / height, group = above % groups;
      int reg = above / groups * height + (row + i) % height;
      for (int n = 0; n < vectors; n++) {
        int at = reg * LANES + group * rows + n * WIDTH;
        Floats result = total[i][n] + (c ? load_floats(c + at) : (Floats){0} + constant);
        memcpy(v + dst * LANES + at, &result, sizeof result);
      }
    }
  }
}

// x: a, b, c register or -1, kind of A, of B, rows, depth, bits of a constant, height, groups of K
static void run_matrix(Ctx *ctx, const Insn *i, Wave *w) {
  f32 a[2048] ALIGNED, b[2048] ALIGNED, old[1024] ALIGNED;
  const i64 *x = i->x;
  const u32 *va = w->v + x[0] * LANES, *vb = w->v + x[1] * LANES;
  const f32 *c = x[2] < 0 ? 0 : (const f32 *)w->v + x[2] * LANES, *formats = ctx->formats;
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
  enum { MOST = 32 * 32 };
  const i64 *x = i->x;
  i32 a[MOST] ALIGNED, b[MOST] ALIGNED, old[MOST] ALIGNED;
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

// V_MFMA_F64_16X16X4_F64: x: a, b, c register or -1, 7 bits of a constant. Rows of a result that
// follow each other are in the four groups of lanes.
static void run_doubles(const Insn *i, Wave *w) {
#if LANES == 64
  enum { ROWS = 16, DEPTH = 4 };
  const i64 *x = i->x;
  f64 a[LANES], b[LANES], result[4][LANES];
  for (int l = 0; l < LANES; l++) {
    a[l] = f64_of(pair_of_lane(w, x[0], l));
    b[l] = f64_of(pair_of_lane(w, x[1], l));
  }
  for (int r = 0; r < 4; r++)
    for (int l = 0; l < LANES; l++) {
      f64 total = x[2] < 0 ? f64_of((u64)x[7]) : f64_of(pair_of_lane(w, x[2] + 2 * r, l));
      for (int k = 0; k < DEPTH; k++)
        total = fma_f64(a[k * ROWS + 4 * r + l / ROWS], b[k * ROWS + l % ROWS], total);
      result[r][l] = total;
    }
  for (int r = 0; r < 4; r++)
    for (int l = 0; l < LANES; l++) {
      u64 bits = of_f64(result[r][l]);
      w->v[(i->dst + 2 * r) * LANES + l] = (u32)bits;
      w->v[(i->dst + 2 * r + 1) * LANES + l] = (u32)(bits >> 32);
    }
#else
  (void)i, (void)w;
#endif
}

enum { BUFFER, GLOBAL, GLOBAL_SCALAR, FLAT, SCRATCH, LOCAL };

// ---- Memory -------------------------------------------------------------------------------------------

// Whether a fault has no effect on most GPUs' results, as Fault.is_hint of gfxemu/faults.py.
static int is_hint(i64 kind) {
  return kind == UNKNOWN_REGISTER || kind == CROOKED_PLACE || kind == CROOKED_PLACE_LDS;
}

static void report(Ctx *c, const Insn *i, i64 kind, u64 value, i64 size, const Wave *w, int lane) {
  Launch *l = c->l;
  i64 index = i - l->insns;
  if (c->seen[index] & 1 << kind) return;
  c->seen[index] |= (u16)(1 << kind);
  if (l->fault_count < l->fault_room) {
    Fault fault = {kind, index, (i64)value, size, w->group, w->number, lane};
    l->faults[l->fault_count++] = fault;
  }
  if (l->strict && !(l->hints && is_hint(kind))) {
    l->status = STRICT;
    c->stop = 1;
  }
}

// The number of the allocation that begins at an address or before it; -1 for none.
static i64 allocation_of(const Launch *l, u64 address) {
  i64 below = 0, above = l->allocations;
  while (below < above) {
    i64 middle = (below + above) / 2;
    if (l->starts[middle] <= address) below = middle + 1;
    else above = middle;
  }
  return below - 1;
}

static int mapped(Ctx *c, u64 address, u64 size) {
  if (address >= c->low && address < c->high && c->high - address >= size) return 1;
  const Launch *l = c->l;
  i64 number = allocation_of(l, address);
  if (number < 0) return 0;
  u64 start = l->starts[number], end = l->ends[number];
  if (address > end || end - address < size) return 0;
  c->low = start;
  c->high = end;
  return 1;
}

// ---- Checks of a checked launch -------------------------------------------------------------------------

static void check_registers(Ctx *c, const Insn *i, const Wave *w) {
  const Launch *l = c->l;
  i64 index = i - l->insns, row = w - c->waves;
  const Use *end = l->uses + l->first_uses[index + 1];
  for (const Use *use = l->uses + l->first_uses[index]; use < end && !c->stop; use++) {
    if (use->kind == READS_SCALARS && memchr(l->known_s + row * 128 + use->first, 0, (size_t)use->count))
      report(c, i, UNKNOWN_REGISTER, (u64)use->number, 0, w, -1);
    if (use->kind != READS_VECTORS) continue;
    u64 missing = 0;
    for (i64 k = 0; k < use->count; k++) missing |= ~l->known_v[row * l->registers + use->first + k];
    if (missing &= w->exec)
      report(c, i, UNKNOWN_REGISTER, (u64)use->number, 0, w, __builtin_ctzll(missing));
  }
}

static void mark_registers(Ctx *c, const Insn *i, const Wave *w, u64 lanes) {
  const Launch *l = c->l;
  i64 index = i - l->insns, row = w - c->waves;
  const Use *end = l->uses + l->first_uses[index + 1];
  for (const Use *use = l->uses + l->first_uses[index]; use < end; use++) {
    if (use->kind == WRITES_SCALARS) memset(l->known_s + row * 128 + use->first, 1, (size_t)use->count);
    if (use->kind != WRITES_VECTORS) continue;
    for (i64 k = 0; k < use->count; k++) l->known_v[row * l->registers + use->first + k] |= lanes;
  }
}

// The bytes that say which bytes from an address on were written, or 0 if nobody follows them.
static u8 *written_at(const Launch *l, u64 address) {
  if (address - l->lds_start < (u64)(l->groups * l->lds_row))
    return l->lds_written + (address - l->lds_start);
  i64 number = allocation_of(l, address);
  if (number < 0 || !l->written[number]) return 0;
  return (u8 *)l->written[number] + (address - l->starts[number]);
}

// Report misaligned addresses and reads of bytes that nothing wrote, and record writes.
static void check_access(Ctx *c, const Insn *i, const Wave *w, const u64 *address, u64 used, i64 size,
                         int reads, int writes) {
  const Launch *l = c->l;
  if (!l->uses) return;
  u64 crooked = 0, missing = 0, align = size < 4 ? (u64)size : 4;
  int local = i->x[0] == LOCAL;
  for (u64 rest = used; rest; rest &= rest - 1) {
    int n = __builtin_ctzll(rest);
    if (address[n] & (align - 1)) crooked |= (u64)1 << n;
    u8 *written = written_at(l, address[n]);
    if (reads && written && memchr(written, 0, (size_t)size)) missing |= (u64)1 << n;
  }
  if (crooked) {
    int lane = __builtin_ctzll(crooked);
    u64 place = address[lane] - (local ? w->lds : 0);
    report(c, i, local ? CROOKED_PLACE_LDS : CROOKED_PLACE, place, size, w, lane);
  }
  if (missing) {
    int lane = __builtin_ctzll(missing), in_lds = address[lane] - l->lds_start < (u64)(l->groups * l->lds_row);
    report(c, i, in_lds ? UNKNOWN_LDS : UNKNOWN_MEMORY, address[lane] - (in_lds ? w->lds : 0), size, w, lane);
  }
  for (u64 rest = writes ? used : 0; rest; rest &= rest - 1) {
    u8 *written = written_at(l, address[__builtin_ctzll(rest)]);
    if (written) memset(written, 1, (size_t)size);
  }
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

typedef u32 Four __attribute__((vector_size(16)));

// Words of the usable lanes, to word[count][LANES]; 0 for others.
static void read_words(const u64 *address, u64 used, int count, u32 *word) {
  if (used != ALL) memset(word, 0, 4 * LANES * (size_t)count);
  if (used == ALL) {
    if (count == 4) {
      for (int l = 0; l < LANES; l += 4) {
        Four of[4], low[2], high[2];
        for (int n = 0; n < 4; n++) memcpy(of + n, (const void *)address[l + n], 16);
        for (int n = 0; n < 2; n++) {
          low[n] = __builtin_shufflevector(of[2 * n], of[2 * n + 1], 0, 4, 1, 5);
          high[n] = __builtin_shufflevector(of[2 * n], of[2 * n + 1], 2, 6, 3, 7);
        }
        of[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5);
        of[1] = __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7);
        of[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5);
        of[3] = __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7);
        for (int n = 0; n < 4; n++) memcpy(word + n * LANES + l, of + n, 16);
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

// Word by word: where lanes share bytes, the last lane wins in each word.
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
  memcpy(o->met, o->issued, sizeof o->met);
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

// Mark granules that a wave of a checked launch reads.
static void mark_reads(Ctx *c, const Insn *i, const Wave *w, const u64 *address, u64 used, i64 size) {
  const Launch *l = c->l;
  u64 *reader = l->readers + (w->group * l->group_waves + w->number) * l->granules;
  u64 mark = (u64)(2 * w->number + LDS) << 48 | (u64)i->number << 32 | (u32)(w->order->issued[LDS] + 1);
  for (u64 rest = used; rest; rest &= rest - 1) {
    u64 place = address[__builtin_ctzll(rest)] - w->lds;
    if (place & (((u64)1 << l->shift) - 1)) continue;
    for (i64 k = 0; k < size >> l->shift; k++) reader[(i64)(place >> l->shift) + k] = mark;
  }
}

// Report a write of bytes that another wave read since the last barrier, in a checked launch.
static void check_readers(Ctx *c, const Insn *i, const Wave *w, const u64 *address, u64 used, i64 size) {
  const Launch *l = c->l;
  for (i64 other = 0; other < l->group_waves; other++) {
    i64 wave = w->group * l->group_waves + other;
    const u64 *reader = l->readers + wave * l->granules;
    if (other == w->number) continue;
    for (u64 rest = used; rest; rest &= rest - 1) {
      int lane = __builtin_ctzll(rest);
      u64 place = address[lane] - w->lds;
      if (place & (((u64)1 << l->shift) - 1)) continue;
      for (i64 k = (i64)(place >> l->shift); k < (i64)(place >> l->shift) + (size >> l->shift); k++)
        if ((u32)reader[k] > (u32)l->orders[wave].met[LDS])
          report(c, i, RACE, (u64)k << l->shift, (i64)(reader[k] >> 32), w, lane);
    }
  }
}

static void order_read(Ctx *c, const Insn *i, Wave *w, const u64 *address, u64 used, i64 size) {
  if (!w->order || !i->number) return;
  check_order(c, i, w, address, used, size, 0);
  if (c->l->uses) mark_reads(c, i, w, address, used, size);
}

static void order_write(Ctx *c, const Insn *i, Wave *w, const u64 *address, u64 used, i64 size,
                        const u32 *word, int queue) {
  if (!w->order || !i->number) return;
  u64 changed = changing(address, used, size, word);
  check_order(c, i, w, address, changed, size, queue == VM);
  if (c->l->uses) check_readers(c, i, w, address, changed, size);
  // A load is outstanding even if it changes nothing.
  mark_writes(c, i, w, address, queue == VM ? used : changed, size, queue);
}

// Addresses of an access, and the lanes that may use them; r: those of a buffer.
static u64 find_addresses(Ctx *c, const Insn *i, const Wave *w, const Access *x, int kind, u64 size,
                          u64 *address, Reach *r) {
  if (kind == OWN_SCRATCH) return scratch_buffer(c, i, w, x, size, address);
  if (x->space != BUFFER) return reach(c, i, w, x, size, address);
  reach_buffer(i, w, x, r);
  memcpy(address, r->address, sizeof r->address);
  return w->exec & r->counted;
}

enum { LOAD, STORE, LOAD_SMALL, STORE_SMALL, TO_LDS };

// x: Access, then 7 what, 8 data register, 9 bytes, 10 signed, 11 half, 12 high, 13 offset in the LDS
static void run_memory(Ctx *c, const Insn *i, const Part *part) {
  const Access *x = (const Access *)i->x;
  i64 what = i->x[7], data = i->x[8], size = i->x[9];
  int words = (int)x->words, kind = WHOLE_BUFFER, writes = what == STORE || what == STORE_SMALL;
  u32 word[4 * LANES] ALIGNED;
  u64 address[LANES] ALIGNED;
  if (x->space == BUFFER) kind = buffer_kind(c, i, part, x);
  if (refuse_buffer(c, kind)) return;
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    Reach r;
    if (what == STORE) memcpy(word, w->v + data * LANES, 4 * LANES * (size_t)words);
    if (what == STORE_SMALL)
      for (int l = 0; l < LANES; l++) word[l] = w->v[data * LANES + l] >> (i->x[12] ? 16 : 0);
    u64 used = find_addresses(c, i, w, x, kind, (u64)size, address, &r);
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
        check_access(c, i, w, moved, good, size < 4 ? size : 4, !writes, writes);
        if (what == LOAD || what == TO_LDS) read_words(moved, good, 1, word + k * LANES);
        if (what == STORE) write_words(moved, good, 1, word + k * LANES);
        used = good;
      }
    } else {
      if (in_map(x)) used = usable(c, i, w, address, (u64)size, used);
      check_access(c, i, w, address, used, size, !writes, writes);
      if (x->space == LOCAL) {
        if (writes) order_write(c, i, w, address, used, size, word, LDS);
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
        memcpy((void *)address[l], word + l, (size_t)size);
      }
    } else if (what == TO_LDS) {
      u64 bad = 0;
      for (int l = 0; l < LANES; l++) {
        i64 place = (i64)(w->s[M0] & 0x3FFFF) + i->x[13] + l * size;
        if (place < 0 || place + size > c->l->lds_bytes) bad |= (u64)1 << l;
        address[l] = (u64)place + w->lds;
      }
      u64 good = w->exec & ~bad;
      bad &= w->exec;
      if (bad) report(c, i, LOADED_RANGE, 0, size, w, __builtin_ctzll(bad));
      order_write(c, i, w, address, good, size, word, VM);
      write_words(address, good, words, word);
      for (u64 rest = c->l->uses ? good : 0; rest; rest &= rest - 1)
        memset(written_at(c->l, address[__builtin_ctzll(rest)]), 1, (size_t)size);
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
    check_access(c, i, w, address, used, (i64)size, i->x[7] != 0, !i->x[7]);
    if (i->x[7]) {
      order_read(c, i, w, address, used, (i64)size);
    } else {
      order_write(c, i, w, address, used, (i64)size, from, LDS);
      write_words(address, used, words, from);
    }
  }
  for (int n = 0; n < part->n && !c->stop; n++) {
    Wave *w = &c->waves[part->rows[n]];
    if (i->x[7]) {
      u64 used = reach(c, i, w, &first, size, address);
      read_words(address, used, words, word);
      used = reach(c, i, w, &second, size, address);
      check_access(c, i, w, address, used, (i64)size, 1, 0);
      order_read(c, i, w, address, used, (i64)size);
      read_words(address, used, words, word + words * LANES);
      for (int k = 0; k < 2 * words; k++) put(w, i->x[8] + k, word + k * LANES, w->exec, w->active);
    } else {
      u64 used = reach(c, i, w, &second, size, address);
      check_access(c, i, w, address, used, (i64)size, 0, 1);
      order_write(c, i, w, address, used, (i64)size, w->v + i->x[9] * LANES, LDS);
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
    check_access(c, i, w, address, used, 8, 1, 0);
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
      u8 *written = good && c->l->uses ? written_at(c->l, at) : 0;
      if (written && memchr(written, 0, (size_t)size)) report(c, i, UNKNOWN_MEMORY, at, size, w, -1);
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
       UMAX_X2, MIN_F32, MAX_F32, MIN_F64, MAX_F64, CMPSWAP, CMPSWAP_X2 };

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
    case MIN_F32: return a << 1 || b << 1 ? of_f32(fmin_f32(f32_of(a), f32_of(b))) : a | b;
    case MAX_F32: return a << 1 || b << 1 ? of_f32(fmax_f32(f32_of(a), f32_of(b))) : a & b;
    case MIN_F64: return old << 1 || value << 1 ? of_f64(fmin_f64(f64_of(old), f64_of(value))) : old | value;
    case MAX_F64: return old << 1 || value << 1 ? of_f64(fmax_f64(f64_of(old), f64_of(value))) : old & value;
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
  Reach r;
  u64 size = 4 * (u64)x->words, used = find_addresses(c, i, w, x, kind, size, address, &r);
  if (kind == BY_WORD && !r.counts) {
    u64 inside = 0;
    for (int l = 0; l < LANES; l++) inside |= (u64)(r.within[l] + 4 * (x->words - 1) < r.limit) << l;
    used &= inside;
  }
  if (in_map(x)) used = usable(c, i, w, address, size, used);
  check_access(c, i, w, address, used, (i64)size, 1, 1);
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
    for (u64 rest = used; rest; rest &= rest - 1) {
      int l = __builtin_ctzll(rest);
      u64 value = words == 2 ? pair_of_lane(w, i->x[8], l) : w->v[i->x[8] * LANES + l], before = 0;
      memcpy(&before, (const void *)address[l], (size_t)size);
      u64 after = updated(i->x[7], before, value);
      if (i->x[7] >= CMPSWAP) {
        u64 compared = words == 2 ? pair_of_lane(w, i->x[11], l) : w->v[i->x[11] * LANES + l];
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
  NOTHING, RUN_VECTOR, RUN_SCALAR, RUN_PACKED, RUN_MIX, RUN_CLOCK, RUN_READLANE, RUN_WRITELANE, RUN_SWAP,
  RUN_PERMUTE, RUN_SWIZZLE, RUN_MATRIX, RUN_DUAL, RUN_ROW, RUN_EXCHANGE, RUN_INTEGERS,
  RUN_DOUBLES, RUN_COUNT, RUN_GETPC, RUN_WAIT,
  LAST_LOCAL = RUN_WAIT,
  RUN_MEMORY, RUN_TWO, RUN_TRANSPOSED, RUN_SCALAR_MEMORY, RUN_ATOMIC, RUN_SERVE, RUN_TRAP,
  RUN_REFUSED,
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
    case RUN_CLOCK: run_clock(c, i, w); break;
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
    case RUN_DOUBLES: run_doubles(i, w); break;
    case RUN_COUNT: issue(w, (int)i->queue - 1); break;
    case RUN_GETPC:
      set_pair(w, i->dst, c->l->entry + (u64)i->x[0]);
      update_exec(w);
      break;
    case RUN_WAIT: run_wait(i, w); break;
  }
}

// Instructions of a checked launch.
static void run_checked(Ctx *c, const Insn *i, const Insn *end, Wave *w) {
  for (; i < end && !c->stop; i++) {
    check_registers(c, i, w);
    u64 lanes = w->exec;
    // It writes one lane, active or not.
    if (i->handler == RUN_WRITELANE) lanes = (u64)1 << ((u32)scalar_value(w, &i->in[1]) & (LANES - 1));
    if (!c->stop) run_local(c, i, w), mark_registers(c, i, w, lanes);
  }
}

// The first active lane ends the launch.
static void run_trap(Ctx *c, const Insn *i, const Part *part) {
  Launch *l = c->l;
  const Wave *first = &c->waves[part->rows[0]];
  for (int n = part->n - 1; n >= 0; n--)
    if (c->waves[part->rows[n]].exec) first = &c->waves[part->rows[n]];
  l->trap = (Fault){TRAP, i - l->insns, 0, 0, first->group, first->number,
                    first->exec ? __builtin_ctzll(first->exec) : 0};
  l->status = TRAPPED;
  c->stop = 1;
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
    if (i->x[0] && l->uses) memset(l->known_s + part.rows[n] * 128 + i->dst, 1, 2);
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
      fail(r, FAILED, first);
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
    fail(r, OUTSIDE, part.pc);
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
        if (l->uses) run_checked(&r->c, l->insns + at, l->insns + stop, w);
        else for (const Insn *i = l->insns + at; i < l->insns + stop; i++) run_local(&r->c, i, w);
      }
      at = stop;
      continue;
    }
    const Insn *i = l->insns + at;
    for (int n = 0; n < part.n && l->uses; n++) check_registers(&r->c, i, &r->c.waves[part.rows[n]]);
    if (!r->c.stop) switch (i->handler) {
      case RUN_MEMORY: run_memory(&r->c, i, &part); break;
      case RUN_TWO: run_two(&r->c, i, &part); break;
      case RUN_TRANSPOSED: run_transposed(&r->c, i, &part); break;
      case RUN_SCALAR_MEMORY: run_scalar_memory(&r->c, i, &part); break;
      case RUN_ATOMIC: run_atomic(&r->c, i, &part); break;
      case RUN_SERVE:
        if (l->serve(at)) fail(r, FAILED, at);
        break;
      case RUN_TRAP: run_trap(&r->c, i, &part); break;
      case RUN_REFUSED: fail(r, UNSUPPORTED, at); return;
    }
    if (r->c.stop) {
      l->status_insn = at;
      return;
    }
    if (i->handler >= FIRST_END) break;
    for (int n = 0; n < part.n && l->uses; n++) {
      const Wave *w = &r->c.waves[part.rows[n]];
      mark_registers(&r->c, i, w, w->exec);
    }
    if (i->queue)
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
  if (r->waiting.count && !r->c.stop) fail(r, AT_BARRIER, r->waiting.items[0].pc);
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

void RUN(Launch *l) {
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
  for (u32 code = 0; code < 256; code++) {
    r.c.formats[code] = from_float8(code, 3, (u64)l->fnuz);
    r.c.formats[256 + code] = from_float8(code, 2, (u64)l->fnuz);
  }
  if (r.no_memory) l->status = NO_MEMORY;
  else run_waves(&r, rows, spans);
  for (int n = 0; n < r.piece_count; n++) free(r.pieces[n]);
}
