/* From coefficients to RGB, to the bit as libjpeg-turbo does it on x86-64: its SIMD code where it has any.
 *
 * Blocks are 64 coefficients in natural order with a 64-bit mask beside them, bit k set where the coefficient at
 * position k of the zigzag order is not zero. Dequantised numbers wrap at 16 bits, sums at 32, and what stands
 * between the two passes is saturated to 16 bits, as there; so files out of order look the same as well.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint16_t q[64]; /* natural order */
} Quantiser;

/* Samples of one row, and the chroma rows that it is made of: [0] the nearer, [1] the one beyond. Rows of chroma that
 * are interpolated along x have a sample before the first and behind the last (repeat_edges). */
typedef struct {
    const uint8_t *y, *cb[2], *cr[2];
} Row;

/* How chroma gets luma's size (jdsample.c). H1V2: the other row is above, or below. */
enum { GREY, FULL, H2_REPEATED, H2V1, H1V2_ABOVE, H1V2_BELOW, H2V2 };

/* Masks of zigzag positions: those that make the first pass more than a shift (jidctred.c leaves out the fifth row). */
static const uint64_t BELOW_FIRST_ROW = 0xFFFFFFFFE7FF3F9C, BELOW_FIRST_ROW_OF_4 = 0xFFAFDF7EE7773B9C;

static inline void repeat_edges(uint8_t *row, size_t width) { row[-1] = row[0], row[width] = row[width - 1]; }

/* ---- Plain C ---- */

static inline int16_t saturated(int32_t value) {
    return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static inline uint8_t limited(int32_t value) { return (uint8_t)(value < -128 ? 0 : value > 127 ? 255 : value + 128); }

/* Sums wrap at 32 bits. */
static inline uint32_t times(int32_t a, int32_t b) { return (uint32_t)(a * b); }

static inline int32_t descaled(uint32_t value, int bits) { return (int32_t)(value + (1u << (bits - 1))) >> bits; }

/* jidctint.c along one axis: 8 numbers that lie `step` apart, in place. Constants have 13 bits behind the point. */
static inline void islow(int16_t *at, int step, int bits) {
    int16_t in[8];
    for (int i = 0; i < 8; i++) in[i] = at[i * step];
    uint32_t mean = times((int16_t)(in[0] + in[4]), 1 << 13), half = times((int16_t)(in[0] - in[4]), 1 << 13);
    uint32_t slow = times(in[2], 10703) + times(in[6], 4433), fast = times(in[2], 4433) + times(in[6], -10704);
    uint32_t even[4] = {mean + slow, half + fast, half - fast, mean - slow};
    int16_t z3 = (int16_t)(in[3] + in[7]), z4 = (int16_t)(in[1] + in[5]);
    uint32_t both3 = times(z3, -6436) + times(z4, 9633), both4 = times(z3, 9633) + times(z4, 6437);
    uint32_t odd[4] = {
        times(in[7], -7373) + times(in[1], 4926) + both4,
        times(in[5], -20995) + times(in[3], 4177) + both3,
        times(in[5], -4176) + times(in[3], -20995) + both4,
        times(in[7], -4927) + times(in[1], -7373) + both3,
    };
    for (int i = 0; i < 4; i++) {
        at[i * step] = saturated(descaled(even[i] + odd[i], bits));
        at[(7 - i) * step] = saturated(descaled(even[i] - odd[i], bits));
    }
}

/* jidctred.c's 4x4 along one axis: of 8 numbers the fifth is left out, and 4 come out. */
static inline void reduced_to_4(int16_t *at, int step, int bits) {
    int16_t in[8];
    for (int i = 0; i < 8; i++) in[i] = at[i * step];
    uint32_t mean = times(in[0], 1 << 14), slow = times(in[2], 15137) + times(in[6], -6270);
    uint32_t inner = times(in[1], 8697) + times(in[3], -17799) + times(in[5], 11893) + times(in[7], -1730);
    uint32_t outer = times(in[1], 20995) + times(in[3], 7373) + times(in[5], -4926) + times(in[7], -4176);
    at[0] = saturated(descaled(mean + slow + outer, bits));
    at[step] = saturated(descaled(mean - slow + inner, bits));
    at[2 * step] = saturated(descaled(mean - slow - inner, bits));
    at[3 * step] = saturated(descaled(mean + slow - outer, bits));
}

static inline uint32_t reduced_to_2(const int16_t *at, int step) {
    return times(at[step], 29692) + times(at[3 * step], -10426) + times(at[5 * step], 6967) + times(at[7 * step], -5906);
}

/* Size 2: column 0 is not saturated between the passes. */
static void idct_2x2(int16_t *block, uint8_t *out, ptrdiff_t stride) {
    int32_t first[2] = {0, 0};
    for (int x = 0; x < 8; x += x ? 2 : 1) {
        uint32_t mean = times(block[x], 1 << 15), change = reduced_to_2(block + x, 8);
        int32_t upper = descaled(mean + change, 13), lower = descaled(mean - change, 13);
        if (x == 0) first[0] = upper, first[1] = lower;
        block[x] = saturated(upper), block[8 + x] = saturated(lower);
    }
    for (int y = 0; y < 2; y++, out += stride) {
        uint32_t mean = (uint32_t)first[y] << 15, change = reduced_to_2(block + 8 * y, 1);
        out[0] = limited(descaled(mean + change, 20)), out[1] = limited(descaled(mean - change, 20));
    }
}

/* Size 1 is C in libjpeg-turbo as well: its table of limits repeats after 10 bits. */
static inline uint8_t idct_1x1(int16_t dc, uint16_t q) {
    int32_t mean = (dc * (int16_t)q + 4) >> 3;
    return limited((int32_t)((uint32_t)mean << 22) >> 22);
}

/* At sizes 8 and 4: with nothing below the first row, the first pass is a shift that wraps. */
static void idct_plain(const int16_t *coefs, uint64_t mask, const Quantiser *quantiser, int size, uint8_t *out,
                       ptrdiff_t stride) {
    int16_t block[64];
    uint64_t matters = size == 8 ? BELOW_FIRST_ROW : BELOW_FIRST_ROW_OF_4;
    for (int i = 0; i < 64; i++) block[i] = (int16_t)(coefs[i] * (int16_t)quantiser->q[i]);
    if (size == 2) {
        idct_2x2(block, out, stride);
        return;
    }
    if (!(mask & matters)) {
        for (int i = 63; i >= 0; i--) block[i] = (int16_t)(block[i & 7] * 4);
    } else {
        for (int x = 0; x < 8; x++) size == 8 ? islow(block + x, 8, 11) : reduced_to_4(block + x, 8, 12);
    }
    for (int y = 0; y < size; y++, out += stride) {
        size == 8 ? islow(block + 8 * y, 1, 18) : reduced_to_4(block + 8 * y, 1, 19);
        for (int x = 0; x < size; x++) out[x] = limited(block[8 * y + x]);
    }
}

/* One row of `count` blocks: `size` rows of count * size samples. `size`, 8, 4, 2 or 1, is this component's. */
static void idct_row(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser, int size,
                     uint8_t *out, ptrdiff_t stride) {
    for (size_t i = 0; i < count; i++, coefs += 64, out += size) {
        if (size == 1) *out = idct_1x1(coefs[0], quantiser->q[0]);
        else idct_plain(coefs, masks[i], quantiser, size, out, stride);
    }
}

/* jdsample.c, of column x in luma's size. */
static inline int32_t chroma_at(const uint8_t *const rows[2], int mode, size_t x) {
    const uint8_t *near = rows[0], *far = rows[1];
    size_t i = mode == FULL || mode == H1V2_ABOVE || mode == H1V2_BELOW ? x : x >> 1, other = x & 1 ? i + 1 : i - 1;
    if (mode == H2V1) return (3 * near[i] + near[other] + (x & 1 ? 2 : 1)) >> 2;
    if (mode == H1V2_ABOVE) return (3 * near[i] + far[i] + 1) >> 2;
    if (mode == H1V2_BELOW) return (3 * near[i] + far[i] + 2) >> 2;
    if (mode == H2V2) return (3 * (3 * near[i] + far[i]) + 3 * near[other] + far[other] + (x & 1 ? 7 : 8)) >> 4;
    return near[i];
}

/* Columns [x0, x1) as RGB. jdcolor.c: 16 bits behind the point. */
static void colour_row(const Row *row, int mode, size_t x0, size_t x1, uint8_t *rgb) {
    for (size_t x = x0; x < x1; x++, rgb += 3) {
        int32_t y = row->y[x] - 128;
        if (mode == GREY) {
            rgb[0] = rgb[1] = rgb[2] = row->y[x];
            continue;
        }
        int32_t cb = chroma_at(row->cb, mode, x) - 128, cr = chroma_at(row->cr, mode, x) - 128;
        rgb[0] = limited(y + ((91881 * cr + 32768) >> 16));
        rgb[1] = limited(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
        rgb[2] = limited(y + ((116130 * cb + 32768) >> 16));
    }
}
