#ifndef VECTOR
/* From coefficients to RGB, to the bit as libjpeg-turbo does it on x86-64: its SIMD code where it has any.
 *
 * Blocks are 64 coefficients in natural order with a 64-bit mask beside them, bit k set where the coefficient at
 * position k of the zigzag order is not zero. Dequantised numbers wrap at 16 bits, sums at 32, and what stands
 * between the two passes is saturated to 16 bits, as there; so files out of order look the same as well.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint16_t q[64]; /* natural order */
} Quantiser;

/* Samples of one row, and the chroma rows that it is made of: [0] the nearer, [1] the one beyond. Behind the last sample
 * 32 bytes can be read. Chroma that is interpolated along x has one before the first as well (repeat_edges). */
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
    if (!(in[1] | in[2] | in[3] | in[4] | in[5] | in[6] | in[7])) {
        for (int i = 0; i < 8; i++) at[i * step] = saturated(descaled(times(in[0], 1 << 13), bits));
        return;
    }
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
    return times(at[step], 29692) + times(at[3 * step], -10426) + times(at[5 * step], 6967) +
           times(at[7 * step], -5906);
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

/* A block of DC alone, at sizes 8, 4 and 2. */
static inline void idct_flat(int16_t dc, uint16_t q, int size, uint8_t *out, ptrdiff_t stride) {
    int16_t value = (int16_t)(dc * (int16_t)q);
    int32_t mean = size == 2 ? (int32_t)((uint32_t)(value * 4 + 16) << 15) >> 20 : ((int16_t)(value * 4) + 16) >> 5;
    uint64_t eight = limited(mean) * 0x0101010101010101u;
    for (int y = 0; y < size; y++, out += stride) memcpy(out, &eight, size);
}

static void idct_row_plain(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser,
                           int size, uint8_t *out, ptrdiff_t stride) {
    for (size_t i = 0; i < count; i++, coefs += 64, out += size) {
        if (size == 1) *out = idct_1x1(coefs[0], quantiser->q[0]);
        else if (masks[i] <= 1) idct_flat(coefs[0], quantiser->q[0], size, out, stride);
        else idct_plain(coefs, masks[i], quantiser, size, out, stride);
    }
}

/* jdsample.c, of column x in luma's size. */
static inline int32_t chroma_at(const uint8_t *const rows[2], int mode, size_t x) {
    const uint8_t *near = rows[0], *far = rows[1];
    ptrdiff_t i = (ptrdiff_t)(mode == FULL || mode == H1V2_ABOVE || mode == H1V2_BELOW ? x : x >> 1);
    ptrdiff_t other = x & 1 ? i + 1 : i - 1; /* one before the row, at its edge */
    if (mode == H2V1) return (3 * near[i] + near[other] + (x & 1 ? 2 : 1)) >> 2;
    if (mode == H1V2_ABOVE) return (3 * near[i] + far[i] + 1) >> 2;
    if (mode == H1V2_BELOW) return (3 * near[i] + far[i] + 2) >> 2;
    if (mode == H2V2) return (3 * (3 * near[i] + far[i]) + 3 * near[other] + far[other] + (x & 1 ? 7 : 8)) >> 4;
    return near[i];
}

/* Columns [x0, x1) as RGB. jdcolor.c: 16 bits behind the point. */
static void colour_row_plain(const Row *row, int mode, size_t x0, size_t x1, uint8_t *rgb) {
    for (size_t x = x0; x < x1; x++, rgb += 3) {
        if (mode == GREY) {
            rgb[0] = rgb[1] = rgb[2] = row->y[x];
            continue;
        }
        int32_t y = row->y[x] - 128;
        int32_t cb = chroma_at(row->cb, mode, x) - 128, cr = chroma_at(row->cr, mode, x) - 128;
        rgb[0] = limited(y + ((91881 * cr + 32768) >> 16));
        rgb[1] = limited(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
        rgb[2] = limited(y + ((116130 * cb + 32768) >> 16));
    }
}

/* ---- SIMD: the second half of this file, included once per instruction set ---- */

/* Positions in zigzag order outside the 4 x 4 lowest frequencies, and outside the 4 leftmost columns. */
static const uint64_t OUTSIDE_4X4 = 0xfffffffffef9c400, OUTSIDE_4_COLUMNS = 0xfffc7f80fe01c000;

/* Bytes of 16 pixels, those of even columns first, to where one of three channels has them in 3 x 16 bytes. */
static const uint8_t SPREAD[3][16] = {
    {0, 13, 3, 8, 6, 11, 1, 14, 4, 9, 7, 12, 2, 15, 5, 10},
    {10, 0, 13, 3, 8, 6, 11, 1, 14, 4, 9, 7, 12, 2, 15, 5},
    {5, 10, 0, 13, 3, 8, 6, 11, 1, 14, 4, 9, 7, 12, 2, 15},
};
static const uint8_t IS_FIRST[16] = {255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255};
static const uint8_t IS_SECOND[16] = {0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0};

/* Blocks that are sorted at once. */
enum { MOST_BLOCKS = 128 };

enum { PLAIN = 1, SSE41, AVX2, NEON };
static const char *const PATHS[] = {"", "plain", "sse41", "avx2", "neon"};

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define VECTOR __m128i
#define HALF __m128i
#define LANES 1
#define TARGET __attribute__((target("sse4.1")))
#define MM(operation) _mm_##operation
#define P(name) name##_sse41
#include "decoder_pixels.h"
#define VECTOR __m256i
#define HALF __m256i
#define LANES 2
#define TARGET __attribute__((target("avx2")))
#define MM(operation) _mm256_##operation
#define P(name) name##_avx2
#include "decoder_pixels.h"
#define IF_X86(...) __VA_ARGS__
#else
#define IF_X86(...)
#endif

#if defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>
#define VECTOR int16x8_t
#define HALF int32x4_t
#define LANES 1
#define TARGET
#define P(name) name##_neon
#include "decoder_pixels.h"
#define IF_ARM(...) __VA_ARGS__
#else
#define IF_ARM(...)
#endif

/* The best path of this machine, or what PCR_EXP_SIMD names if that is one of its own; found out once. */
static int simd_path(void) {
    static int chosen;
    int path = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (path) return path;
    IF_X86(path = __builtin_cpu_supports("avx2") ? AVX2 : __builtin_cpu_supports("sse4.1") ? SSE41 : PLAIN;)
    IF_ARM(path = NEON;)
    if (!path) path = PLAIN;
    const char *wanted = getenv("PCR_EXP_SIMD");
    if (wanted && !strcmp(wanted, "plain")) path = PLAIN;
    if (wanted && !strcmp(wanted, "sse41") && path == AVX2) path = SSE41;
    __atomic_store_n(&chosen, path, __ATOMIC_RELAXED);
    return path;
}

#define BY_PATH(function, ...)                                    \
    switch (simd_path()) {                                        \
        IF_X86(case AVX2: function##_avx2(__VA_ARGS__); break;)   \
        IF_X86(case SSE41: function##_sse41(__VA_ARGS__); break;) \
        IF_ARM(case NEON: function##_neon(__VA_ARGS__); break;)   \
        default: function##_plain(__VA_ARGS__);                   \
    }

/* One row of `count` blocks: `size` rows of count * size samples. `size`, 8, 4, 2 or 1, is this component's. */
static void idct_row(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser, int size,
                     uint8_t *out, ptrdiff_t stride) {
    if (size < 4) idct_row_plain(coefs, masks, count, quantiser, size, out, stride);
    else BY_PATH(idct_row, coefs, masks, count, quantiser, size, out, stride);
}

/* Columns [x0, x1) as RGB. */
static void colour_row(const Row *row, int mode, size_t x0, size_t x1, uint8_t *rgb) {
    BY_PATH(colour_row, row, mode, x0, x1, rgb);
}

#else /* VECTOR: 8 or 16 lanes of 16 bits, 1 or 2 blocks; HALF: as many bits in lanes of 32 */

#define INLINE static inline __attribute__((always_inline)) TARGET

typedef struct {
    HALF lo, hi; /* of every 8 lanes the lower and the upper 4 */
} P(Wide);
#define Wide P(Wide)

#ifdef MM /* x86 */
#if LANES == 2
INLINE VECTOR P(load)(const void *at) { return _mm256_loadu_si256(at); }
INLINE VECTOR P(load_rows)(const int16_t *a, const int16_t *b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                   _mm_loadu_si128((const __m128i *)b), 1);
}
INLINE VECTOR P(repeated)(const void *at) { return _mm256_castps_si256(_mm256_broadcast_ps(at)); } /* of memory, any */
INLINE VECTOR P(load_u8)(const uint8_t *at) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)at)); }
INLINE int P(is_any)(VECTOR a, VECTOR b) { return !_mm256_testz_si256(a, b); }
INLINE void P(store_8)(VECTOR rows, uint8_t *a, uint8_t *b, ptrdiff_t stride) {
    __m128i first = _mm256_castsi256_si128(rows), second = _mm256_extracti128_si256(rows, 1);
    _mm_storel_epi64((__m128i *)a, first), _mm_storeh_pi((__m64 *)(a + stride), _mm_castsi128_ps(first));
    _mm_storel_epi64((__m128i *)b, second), _mm_storeh_pi((__m64 *)(b + stride), _mm_castsi128_ps(second));
}
INLINE void P(store_rgb)(const VECTOR *of, uint8_t *out) {
    _mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(of[0], of[1], 0x20));
    _mm256_storeu_si256((__m256i *)(out + 32), _mm256_permute2x128_si256(of[2], of[0], 0x30));
    _mm256_storeu_si256((__m256i *)(out + 64), _mm256_permute2x128_si256(of[1], of[2], 0x31));
}
INLINE void P(store)(void *at, VECTOR v) { _mm256_storeu_si256(at, v); }
INLINE VECTOR P(masked)(VECTOR a, VECTOR b) { return _mm256_and_si256(a, b); }
INLINE VECTOR P(flipped)(VECTOR a, VECTOR b) { return _mm256_xor_si256(a, b); }
INLINE VECTOR P(none)(void) { return _mm256_setzero_si256(); }
#else
INLINE VECTOR P(load)(const void *at) { return _mm_loadu_si128(at); }
INLINE VECTOR P(load_rows)(const int16_t *a, const int16_t *b) { return (void)b, P(load)(a); }
INLINE VECTOR P(repeated)(const void *at) { return P(load)(at); }
INLINE VECTOR P(load_u8)(const uint8_t *at) { return _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)at)); }
INLINE int P(is_any)(VECTOR a, VECTOR b) { return !_mm_testz_si128(a, b); }
INLINE void P(store_8)(VECTOR rows, uint8_t *a, uint8_t *b, ptrdiff_t stride) {
    (void)b, _mm_storel_epi64((__m128i *)a, rows), _mm_storeh_pi((__m64 *)(a + stride), _mm_castsi128_ps(rows));
}
INLINE void P(store_rgb)(const VECTOR *of, uint8_t *out) {
    for (int i = 0; i < 3; i++) _mm_storeu_si128((__m128i *)out + i, of[i]);
}
INLINE void P(store)(void *at, VECTOR v) { _mm_storeu_si128(at, v); }
INLINE VECTOR P(masked)(VECTOR a, VECTOR b) { return _mm_and_si128(a, b); }
INLINE VECTOR P(flipped)(VECTOR a, VECTOR b) { return _mm_xor_si128(a, b); }
INLINE VECTOR P(none)(void) { return _mm_setzero_si128(); }
#endif
INLINE VECTOR P(all)(int value) { return MM(set1_epi16)((int16_t)value); }
INLINE VECTOR P(plus)(VECTOR a, VECTOR b) { return MM(add_epi16)(a, b); }
INLINE VECTOR P(minus)(VECTOR a, VECTOR b) { return MM(sub_epi16)(a, b); }
INLINE VECTOR P(times)(VECTOR a, VECTOR b) { return MM(mullo_epi16)(a, b); }
INLINE VECTOR P(scaled)(VECTOR a, int k) { return MM(mulhrs_epi16)(a, P(all)(k)); } /* (a * k + 2^14) >> 15 */
INLINE VECTOR P(shifted)(VECTOR a, int bits) { return MM(srai_epi16)(a, bits); }
INLINE VECTOR P(odd_bytes)(VECTOR a) { return MM(srli_epi16)(a, 8); }
INLINE VECTOR P(zip_lo)(VECTOR a, VECTOR b) { return MM(unpacklo_epi16)(a, b); }
INLINE VECTOR P(zip_hi)(VECTOR a, VECTOR b) { return MM(unpackhi_epi16)(a, b); }
INLINE VECTOR P(zip_bytes_lo)(VECTOR a, VECTOR b) { return MM(unpacklo_epi8)(a, b); }
INLINE VECTOR P(zip_bytes_hi)(VECTOR a, VECTOR b) { return MM(unpackhi_epi8)(a, b); }
INLINE VECTOR P(to_bytes)(VECTOR a, VECTOR b) { return MM(packs_epi16)(a, b); } /* signed, saturated */
INLINE HALF P(add)(HALF a, HALF b) { return MM(add_epi32)(a, b); }
INLINE HALF P(sub)(HALF a, HALF b) { return MM(sub_epi32)(a, b); }
INLINE HALF P(add_all)(HALF a, int value) { return MM(add_epi32)(a, MM(set1_epi32)(value)); }
INLINE VECTOR P(narrowed)(HALF a, HALF b, int bits) {
    return MM(packs_epi32)(MM(srai_epi32)(a, bits), MM(srai_epi32)(b, bits));
}
INLINE Wide P(widened)(VECTOR a, int bits) { /* a << bits */
    VECTOR zero = P(none)();
    return (Wide){MM(srai_epi32)(P(zip_lo)(zero, a), 16 - bits), MM(srai_epi32)(P(zip_hi)(zero, a), 16 - bits)};
}
INLINE Wide P(products)(VECTOR a, VECTOR b, int k, int l) { /* a * k + b * l */
    HALF both = MM(set1_epi32)((int32_t)((uint32_t)l << 16 | (uint16_t)k));
    return (Wide){MM(madd_epi16)(P(zip_lo)(a, b), both), MM(madd_epi16)(P(zip_hi)(a, b), both)};
}
/* 16 pixels a lane, even columns and odd ones of each channel. */
INLINE void P(write_rgb)(const VECTOR even[3], const VECTOR odd[3], uint8_t *out) {
    VECTOR spread[3], mixed[3], is_first = P(repeated)(IS_FIRST), is_second = P(repeated)(IS_SECOND);
    for (int i = 0; i < 3; i++)
        spread[i] = MM(shuffle_epi8)(MM(packus_epi16)(even[i], odd[i]), P(repeated)(SPREAD[i]));
    for (int i = 0; i < 3; i++) {
        VECTOR others = MM(blendv_epi8)(spread[(i + 2) % 3], spread[(i + 1) % 3], is_second);
        mixed[i] = MM(blendv_epi8)(others, spread[i], is_first);
    }
    P(store_rgb)(mixed, out);
}
#else /* arm64 */
INLINE VECTOR P(load)(const void *at) { return vreinterpretq_s16_u8(vld1q_u8(at)); }
INLINE VECTOR P(load_rows)(const int16_t *a, const int16_t *b) { return (void)b, vld1q_s16(a); }
INLINE VECTOR P(repeated)(const void *at) { return P(load)(at); }
INLINE VECTOR P(load_u8)(const uint8_t *at) { return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(at))); }
INLINE int P(is_any)(VECTOR a, VECTOR b) { return vmaxvq_u16(vreinterpretq_u16_s16(vandq_s16(a, b))) != 0; }
INLINE void P(store_8)(VECTOR rows, uint8_t *a, uint8_t *b, ptrdiff_t stride) {
    uint8x16_t bytes = vreinterpretq_u8_s16(rows);
    (void)b, vst1_u8(a, vget_low_u8(bytes)), vst1_u8(a + stride, vget_high_u8(bytes));
}
INLINE void P(store)(void *at, VECTOR v) { vst1q_u8(at, vreinterpretq_u8_s16(v)); }
INLINE VECTOR P(masked)(VECTOR a, VECTOR b) { return vandq_s16(a, b); }
INLINE VECTOR P(flipped)(VECTOR a, VECTOR b) { return veorq_s16(a, b); }
INLINE VECTOR P(all)(int value) { return vdupq_n_s16((int16_t)value); }
INLINE VECTOR P(plus)(VECTOR a, VECTOR b) { return vaddq_s16(a, b); }
INLINE VECTOR P(minus)(VECTOR a, VECTOR b) { return vsubq_s16(a, b); }
INLINE VECTOR P(times)(VECTOR a, VECTOR b) { return vmulq_s16(a, b); }
INLINE VECTOR P(scaled)(VECTOR a, int k) { return vqrdmulhq_n_s16(a, (int16_t)k); } /* (a * k + 2^14) >> 15 */
INLINE VECTOR P(shifted)(VECTOR a, int bits) { return vshlq_s16(a, vdupq_n_s16((int16_t)-bits)); }
INLINE VECTOR P(odd_bytes)(VECTOR a) { return vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_s16(a), 8)); }
INLINE VECTOR P(zip_lo)(VECTOR a, VECTOR b) { return vzip1q_s16(a, b); }
INLINE VECTOR P(zip_hi)(VECTOR a, VECTOR b) { return vzip2q_s16(a, b); }
INLINE VECTOR P(zip_bytes_lo)(VECTOR a, VECTOR b) {
    return vreinterpretq_s16_s8(vzip1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b)));
}
INLINE VECTOR P(zip_bytes_hi)(VECTOR a, VECTOR b) {
    return vreinterpretq_s16_s8(vzip2q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b)));
}
INLINE VECTOR P(to_bytes)(VECTOR a, VECTOR b) { /* signed, saturated */
    return vreinterpretq_s16_s8(vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
}
INLINE HALF P(add)(HALF a, HALF b) { return vaddq_s32(a, b); }
INLINE HALF P(sub)(HALF a, HALF b) { return vsubq_s32(a, b); }
INLINE HALF P(add_all)(HALF a, int value) { return vaddq_s32(a, vdupq_n_s32(value)); }
INLINE VECTOR P(narrowed)(HALF a, HALF b, int bits) {
    HALF by = vdupq_n_s32(-bits);
    return vcombine_s16(vqmovn_s32(vshlq_s32(a, by)), vqmovn_s32(vshlq_s32(b, by)));
}
INLINE Wide P(widened)(VECTOR a, int bits) { /* a << bits */
    HALF by = vdupq_n_s32(bits);
    return (Wide){vshlq_s32(vmovl_s16(vget_low_s16(a)), by), vshlq_s32(vmovl_high_s16(a), by)};
}
INLINE Wide P(products)(VECTOR a, VECTOR b, int k, int l) { /* a * k + b * l */
    int16_t first = (int16_t)k, second = (int16_t)l;
    return (Wide){vmlal_n_s16(vmull_n_s16(vget_low_s16(a), first), vget_low_s16(b), second),
                  vmlal_high_n_s16(vmull_high_n_s16(a, first), b, second)};
}
/* 16 pixels, even columns and odd ones of each channel. */
INLINE void P(write_rgb)(const VECTOR even[3], const VECTOR odd[3], uint8_t *out) {
    uint8x16x3_t all;
    for (int i = 0; i < 3; i++) {
        uint8x8x2_t zipped = vzip_u8(vqmovun_s16(even[i]), vqmovun_s16(odd[i]));
        all.val[i] = vcombine_u8(zipped.val[0], zipped.val[1]);
    }
    vst3q_u8(out, all);
}
#endif

INLINE Wide P(sums)(Wide a, Wide b) { return (Wide){P(add)(a.lo, b.lo), P(add)(a.hi, b.hi)}; }
INLINE Wide P(differences)(Wide a, Wide b) { return (Wide){P(sub)(a.lo, b.lo), P(sub)(a.hi, b.hi)}; }

/* As `islow` above, before the shift by `bits`; is_short: in[4] to in[7] are 0, and constants are joined. */
INLINE void P(islow)(const VECTOR *in, int is_short, int bits, Wide out[8]) {
    Wide mean, half, slow, fast, odd[4];
    if (is_short) {
        mean = half = P(widened)(in[0], 13);
        slow = P(products)(in[2], in[2], 10703, 0), fast = P(products)(in[2], in[2], 4433, 0);
        odd[0] = P(products)(in[1], in[3], 11363, 9633), odd[1] = P(products)(in[1], in[3], 9633, -2259);
        odd[2] = P(products)(in[1], in[3], 6437, -11362), odd[3] = P(products)(in[1], in[3], 2260, -6436);
    } else {
        mean = P(widened)(P(plus)(in[0], in[4]), 13), half = P(widened)(P(minus)(in[0], in[4]), 13);
        slow = P(products)(in[2], in[6], 10703, 4433), fast = P(products)(in[2], in[6], 4433, -10704);
        VECTOR z3 = P(plus)(in[3], in[7]), z4 = P(plus)(in[1], in[5]);
        Wide both3 = P(products)(z3, z4, -6436, 9633), both4 = P(products)(z3, z4, 9633, 6437);
        odd[0] = P(sums)(P(products)(in[7], in[1], -7373, 4926), both4);
        odd[1] = P(sums)(P(products)(in[5], in[3], -20995, 4177), both3);
        odd[2] = P(sums)(P(products)(in[5], in[3], -4176, -20995), both4);
        odd[3] = P(sums)(P(products)(in[7], in[1], -4927, -7373), both3);
    }
    mean = (Wide){P(add_all)(mean.lo, 1 << (bits - 1)), P(add_all)(mean.hi, 1 << (bits - 1))};
    half = (Wide){P(add_all)(half.lo, 1 << (bits - 1)), P(add_all)(half.hi, 1 << (bits - 1))};
    Wide even[4] = {P(sums)(mean, slow), P(sums)(half, fast), P(differences)(half, fast), P(differences)(mean, slow)};
    for (int i = 0; i < 4; i++) out[i] = P(sums)(even[i], odd[i]), out[7 - i] = P(differences)(even[i], odd[i]);
}

/* `rounds` perfect shuffles of 8 * count lanes (of every block): each turns the bits of a lane's place by one, so that
 * three transpose 8 x 8. */
INLINE void P(shuffle)(VECTOR *v, int count, int rounds) {
    for (VECTOR next[8]; rounds > 0; rounds--) {
        for (int i = 0; i < count / 2; i++) {
            next[2 * i] = P(zip_lo)(v[i], v[i + count / 2]);
            next[2 * i + 1] = P(zip_hi)(v[i], v[i + count / 2]);
        }
        for (int i = 0; i < count; i++) v[i] = next[i];
    }
}

/* Rows of LANES blocks, dequantised; 0 where the first pass may wrap, which is left to plain C. */
INLINE int P(dequantised)(const int16_t *a, const int16_t *b, const Quantiser *quantiser, int num_rows, VECTOR *rows) {
    for (int i = 0; i < num_rows; i++)
        rows[i] = P(times)(P(load_rows)(a + 8 * i, b + 8 * i), P(repeated)(quantiser->q + 8 * i));
    return !P(is_any)(P(plus)(rows[0], P(all)(0x2000)), P(all)(0xC000));
}

/* LANES blocks at size 8. Without columns 4 to 7 (is_narrow) the first pass has half the lanes and the second half the
 * terms; is_low: without rows 4 to 7. */
INLINE int P(idct_8x8)(const int16_t *a, const int16_t *b, const Quantiser *quantiser, int is_narrow, int is_low,
                       uint8_t *out_a, uint8_t *out_b, ptrdiff_t stride) {
    VECTOR v[8], bytes[4], next[4];
    Wide wide[8];
    if (!P(dequantised)(a, b, quantiser, is_low ? 4 : 8, v)) return 0;
    P(islow)(v, is_low, 11, wide);
    if (is_narrow)
        for (int i = 0; i < 4; i++) v[i] = P(narrowed)(wide[i].lo, wide[i + 4].lo, 11);
    else
        for (int i = 0; i < 8; i++) v[i] = P(narrowed)(wide[i].lo, wide[i].hi, 11);
    P(shuffle)(v, is_narrow ? 4 : 8, 3); /* is_narrow: rows come as 0, 4, 1, 5, 2, 6, 3, 7 */
    P(islow)(v, is_narrow, 18, wide);
    for (int i = 0; i < 8; i++) v[i] = P(narrowed)(wide[i].lo, wide[i].hi, 18);
    for (int i = 0; i < 4; i++) bytes[i] = P(to_bytes)(v[2 * i], v[2 * i + 1]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            next[2 * i] = P(zip_bytes_lo)(bytes[i], bytes[i + 2]);
            next[2 * i + 1] = P(zip_bytes_hi)(bytes[i], bytes[i + 2]);
        }
        for (int i = 0; i < 4; i++) bytes[i] = next[i];
    }
    for (int i = 0; i < 4; i++) {
        ptrdiff_t first = (is_narrow ? i : 2 * i) * stride, step = is_narrow ? 4 * stride : stride;
        P(store_8)(P(flipped)(bytes[i], P(all)(0x8080)), out_a + first, out_b + first, step);
    }
    return 1;
}

/* The end of `reduced_to_4`, of its four sums of products. */
INLINE void P(reduced_to_4)(HALF mean, HALF slow, HALF inner, HALF outer, int bits, HALF out[4]) {
    mean = P(add_all)(mean, 1 << (bits - 1));
    HALF far = P(add)(mean, slow), near = P(sub)(mean, slow);
    out[0] = P(add)(far, outer), out[1] = P(add)(near, inner);
    out[2] = P(sub)(near, inner), out[3] = P(sub)(far, outer);
}

/* LANES blocks at size 4; is_low: of their 4 x 4 lowest frequencies alone. */
INLINE int P(idct_4x4)(const int16_t *a, const int16_t *b, const Quantiser *quantiser, int is_low, uint8_t *out_a,
                       uint8_t *out_b, ptrdiff_t stride) {
    VECTOR v[8];
    HALF lo[4], hi[4];
    if (!P(dequantised)(a, b, quantiser, is_low ? 4 : 8, v)) return 0;
    Wide inner = P(products)(v[1], v[3], 8697, -17799), outer = P(products)(v[1], v[3], 20995, 7373), slow;
    if (is_low) {
        slow = P(products)(v[2], v[2], 15137, 0);
    } else {
        slow = P(products)(v[2], v[6], 15137, -6270);
        inner = P(sums)(inner, P(products)(v[5], v[7], 11893, -1730));
        outer = P(sums)(outer, P(products)(v[5], v[7], -4926, -4176));
    }
    Wide mean = P(widened)(v[0], 14);
    P(reduced_to_4)(mean.lo, slow.lo, inner.lo, outer.lo, 12, lo);
    P(reduced_to_4)(mean.hi, slow.hi, inner.hi, outer.hi, 12, hi);
    for (int i = 0; i < (is_low ? 2 : 4); i++)
        v[i] = is_low ? P(narrowed)(lo[2 * i], lo[2 * i + 1], 12) : P(narrowed)(lo[i], hi[i], 12);
    P(shuffle)(v, is_low ? 2 : 4, 2); /* two columns in each, of 4 rows */
    HALF evens = P(products)(v[1], is_low ? v[1] : v[3], 15137, is_low ? 0 : -6270).lo;
    HALF inners = P(products)(v[0], v[1], 8697, -17799).hi, outers = P(products)(v[0], v[1], 20995, 7373).hi;
    if (!is_low) {
        inners = P(add)(inners, P(products)(v[2], v[3], 11893, -1730).hi);
        outers = P(add)(outers, P(products)(v[2], v[3], -4926, -4176).hi);
    }
    P(reduced_to_4)(P(widened)(v[0], 14).lo, evens, inners, outers, 19, lo);
    for (int i = 0; i < 2; i++) v[i] = P(narrowed)(lo[2 * i], lo[2 * i + 1], 19);
    P(shuffle)(v, 2, 2);
    uint8_t bytes[LANES * 16];
    P(store)(bytes, P(flipped)(P(to_bytes)(v[0], v[1]), P(all)(0x8080)));
    for (int y = 0; y < 4; y++) {
        memcpy(out_a + y * stride, bytes + 4 * y, 4);
        if (LANES == 2) memcpy(out_b + y * stride, bytes + 16 + 4 * y, 4);
    }
    return 1;
}

/* Blocks are sorted by how much there is to do, and those alike go through together. */
INLINE void P(idct_blocks)(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser,
                           int size, uint8_t *out, ptrdiff_t stride) {
    enum { FLAT, LOW, NARROW, ANY };
    uint8_t alike[4][MOST_BLOCKS + 1];
    size_t num[4] = {0, 0, 0, 0};
    for (size_t i = 0; i < count; i++) {
        int kind = (masks[i] > 1) + ((masks[i] & OUTSIDE_4X4) != 0) + ((masks[i] & OUTSIDE_4_COLUMNS) != 0);
        alike[kind][num[kind]++] = (uint8_t)i;
    }
    for (size_t n = 0; n < num[FLAT]; n++) {
        size_t i = alike[FLAT][n];
        idct_flat(coefs[64 * i], quantiser->q[0], size, out + size * i, stride);
    }
    for (int kind = LOW; kind <= ANY; kind++) {
        if (num[kind]) alike[kind][num[kind]] = alike[kind][num[kind] - 1]; /* beside the last of an odd number */
        for (size_t n = 0; n < num[kind]; n += LANES) {
            size_t i = alike[kind][n], j = alike[kind][n + LANES - 1];
            const int16_t *a = coefs + 64 * i, *b = coefs + 64 * j;
            uint8_t *to_a = out + size * i, *to_b = out + size * j;
            int is_done;
            if (size == 4) is_done = kind == LOW ? P(idct_4x4)(a, b, quantiser, 1, to_a, to_b, stride)
                                                 : P(idct_4x4)(a, b, quantiser, 0, to_a, to_b, stride);
            else if (kind == LOW) is_done = P(idct_8x8)(a, b, quantiser, 1, 1, to_a, to_b, stride);
            else if (kind == NARROW) is_done = P(idct_8x8)(a, b, quantiser, 1, 0, to_a, to_b, stride);
            else is_done = P(idct_8x8)(a, b, quantiser, 0, 0, to_a, to_b, stride);
            if (is_done) continue;
            idct_plain(a, masks[i], quantiser, size, to_a, stride);
            if (LANES == 2) idct_plain(b, masks[j], quantiser, size, to_b, stride);
        }
    }
}

/* As idct_row_plain, at sizes 8 and 4. */
TARGET static void P(idct_row)(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser,
                               int size, uint8_t *out, ptrdiff_t stride) {
    for (size_t i = 0; i < count; i += MOST_BLOCKS) {
        size_t next = count - i < MOST_BLOCKS ? count - i : MOST_BLOCKS;
        if (size == 8) P(idct_blocks)(coefs + 64 * i, masks + i, next, quantiser, 8, out + 8 * i, stride);
        else P(idct_blocks)(coefs + 64 * i, masks + i, next, quantiser, 4, out + 4 * i, stride);
    }
}

/* As chroma_at, less 128, of 8 * LANES pairs of columns from an even one on. */
INLINE void P(chroma)(const uint8_t *const rows[2], int mode, size_t x, VECTOR *even, VECTOR *odd) {
    const uint8_t *near = rows[0] + x / 2, *far = rows[1] + x / 2;
    VECTOR low = P(all)(255), v[3];
    if (mode == FULL) {
        VECTOR both = P(load)(rows[0] + x);
        *even = P(minus)(P(masked)(both, low), P(all)(128)), *odd = P(minus)(P(odd_bytes)(both), P(all)(128));
    } else if (mode == H2_REPEATED) {
        *even = *odd = P(minus)(P(load_u8)(near), P(all)(128));
    } else if (mode == H1V2_ABOVE || mode == H1V2_BELOW) {
        VECTOR a = P(load)(rows[0] + x), b = P(load)(rows[1] + x), bias = P(all)((mode == H1V2_ABOVE ? 1 : 2) - 512);
        VECTOR evens = P(masked)(a, low), odds = P(odd_bytes)(a);
        evens = P(plus)(P(plus)(evens, evens), P(plus)(evens, P(masked)(b, low)));
        odds = P(plus)(P(plus)(odds, odds), P(plus)(odds, P(odd_bytes)(b)));
        *even = P(shifted)(P(plus)(evens, bias), 2), *odd = P(shifted)(P(plus)(odds, bias), 2);
    } else { /* the sample before, the one here, the one behind */
        for (int i = 0; i < 3; i++) {
            v[i] = P(load_u8)(near + i - 1);
            if (mode == H2V2) v[i] = P(plus)(P(plus)(v[i], v[i]), P(plus)(v[i], P(load_u8)(far + i - 1)));
        }
        VECTOR here = P(plus)(P(plus)(v[1], v[1]), v[1]);
        int is_v2 = mode == H2V2, bits = is_v2 ? 4 : 2, centre = 128 << bits;
        *even = P(shifted)(P(plus)(P(plus)(here, v[0]), P(all)((is_v2 ? 8 : 1) - centre)), bits);
        *odd = P(shifted)(P(plus)(P(plus)(here, v[2]), P(all)((is_v2 ? 7 : 2) - centre)), bits);
    }
}

/* jdcolor.c: what its tables have is x + (x * 13173 rounded) and 2 x - (x * 7471 rounded) for all of -128..127. */
INLINE void P(rgb)(VECTOR y, VECTOR cb, VECTOR cr, VECTOR out[3]) {
    Wide green = P(products)(cb, cr, -22554, 65536 - 46802);
    out[0] = P(plus)(P(plus)(y, cr), P(scaled)(cr, 13173));
    out[1] = P(narrowed)(P(add_all)(green.lo, 1 << 15), P(add_all)(green.hi, 1 << 15), 16);
    out[1] = P(plus)(P(minus)(y, cr), out[1]);
    out[2] = P(plus)(P(plus)(y, cb), P(plus)(cb, P(scaled)(cb, -7471)));
}

/* 16 * LANES columns. */
INLINE void P(colour)(const Row *row, int mode, size_t x, uint8_t *out) {
    VECTOR y = P(load)(row->y + x), even[3], odd[3], cb[2], cr[2];
    even[0] = even[1] = even[2] = P(masked)(y, P(all)(255)), odd[0] = odd[1] = odd[2] = P(odd_bytes)(y);
    if (mode != GREY) {
        P(chroma)(row->cb, mode, x, &cb[0], &cb[1]), P(chroma)(row->cr, mode, x, &cr[0], &cr[1]);
        P(rgb)(even[0], cb[0], cr[0], even), P(rgb)(odd[0], cb[1], cr[1], odd);
    }
    P(write_rgb)(even, odd, out);
}

INLINE void P(colour_mode)(const Row *row, int mode, size_t x0, size_t x1, uint8_t *rgb) {
    if (x0 % 2 && x0 < x1) colour_row_plain(row, mode, x0, x0 + 1, rgb), x0++, rgb += 3;
    for (; x1 - x0 >= 16 * LANES; x0 += 16 * LANES, rgb += 48 * LANES) P(colour)(row, mode, x0, rgb);
    if (x0 == x1) return;
    uint8_t last[48 * LANES];
    P(colour)(row, mode, x0, last);
    memcpy(rgb, last, 3 * (x1 - x0));
}

TARGET static void P(colour_row)(const Row *row, int mode, size_t x0, size_t x1, uint8_t *rgb) {
    if (x0 >= x1) return;
    switch (mode) {
    case GREY: P(colour_mode)(row, GREY, x0, x1, rgb); return;
    case FULL: P(colour_mode)(row, FULL, x0, x1, rgb); return;
    case H2_REPEATED: P(colour_mode)(row, H2_REPEATED, x0, x1, rgb); return;
    case H2V1: P(colour_mode)(row, H2V1, x0, x1, rgb); return;
    case H1V2_ABOVE: P(colour_mode)(row, H1V2_ABOVE, x0, x1, rgb); return;
    case H1V2_BELOW: P(colour_mode)(row, H1V2_BELOW, x0, x1, rgb); return;
    default: P(colour_mode)(row, H2V2, x0, x1, rgb);
    }
}
#undef Wide
#undef VECTOR
#undef HALF
#undef LANES
#undef TARGET
#undef MM
#undef P
#undef INLINE
#endif
