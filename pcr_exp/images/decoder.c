#ifndef VECTOR
/* A decoder for 8-bit Huffman-coded JPEG: sequential and progressive, any prefix of the scans, any rectangle.
 *
 * Pixels equal libjpeg-turbo's bit for bit (islow inverse DCT and its reduced sizes, fancy upsampling, no block
 * smoothing). Anything that is not exactly in order is left to libjpeg, which decodes it or reports what is wrong.
 * UNSUPPORTED never means that a file is bad. No byte outside the buffers is touched, whatever they hold.
 *
 * All scans advance together, one chunk of block rows at a time, so that coefficients stay in the cache. They stop
 * behind the rectangle. Entropy-coded bytes are unstuffed and bit-reversed once, so that bits are read from the low
 * end. AC scans advance two at a time, one symbol of each in turn, without branches: the latency of one is hidden
 * behind the other (see "Lanes"). A refining scan does not modify coefficients that are nonzero already. Using 64-bit
 * masks of these, it deposits its correction bits in a bit plane, which is added at the end.
 *
 * The file has three parts. The first goes from blocks of coefficients to pixels in plain C. The second goes from a
 * file to blocks, and has all exported functions. The third is the first again in vectors; the file includes itself
 * for it, once per instruction set.
 *
 * C11, without Python's C API: called through ctypes, which releases the GIL meanwhile. Markers follow ITU-T T.81.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ==== From blocks to pixels ====
 *
 * Pixels equal those of libjpeg-turbo on x86-64 bit for bit: of its SIMD code where it has any. A block is 64
 * coefficients in natural order and a separate 64-bit mask. Bit k of the mask is set if the coefficient at zigzag
 * position k is not zero. As in libjpeg-turbo, dequantised numbers wrap at 16 bits and sums at 32, and values between
 * the two passes are saturated to 16 bits. So irregular files look the same as well. */

typedef struct {
    uint16_t q[64]; /* natural order */
} Quantiser;

/* Luma samples of one row, and the chroma rows for it: [0] the nearer one, [1] the one beyond. 32 bytes behind the last
 * sample are readable. Chroma that is interpolated along x also has a sample before the first (repeat_edges). */
typedef struct {
    const uint8_t *y, *cb[2], *cr[2];
} Row;

/* How chroma is upsampled to luma's size (jdsample.c). H1V2: the other row is above, or below. */
enum { GREY, FULL, H2_REPEATED, H2V1, H1V2_ABOVE, H1V2_BELOW, H2V2 };

/* Masks of the zigzag positions that make the first pass more than a shift (jidctred.c ignores the fifth row). */
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

/* jidctint.c along one axis: 8 numbers, `step` apart, in place. Constants have 13 fractional bits. */
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

/* jidctred.c's 4x4 along one axis: 8 numbers, of which the fifth is ignored, become 4. */
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

/* Size 1 is C code in libjpeg-turbo as well. Its range-limit table repeats after 10 bits. */
static inline uint8_t idct_1x1(int16_t dc, uint16_t q) {
    int32_t mean = (dc * (int16_t)q + 4) >> 3;
    return limited((int32_t)((uint32_t)mean << 22) >> 22);
}

/* At sizes 8 and 4, if nothing below the first row is nonzero, the first pass is a shift that wraps. */
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

/* A block that has only DC, at sizes 8, 4 and 2. */
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

/* jdsample.c, for column x at luma's size. */
static inline int32_t chroma_at(const uint8_t *const rows[2], int mode, size_t x) {
    const uint8_t *near = rows[0], *far = rows[1];
    ptrdiff_t i = (ptrdiff_t)(mode == FULL || mode == H1V2_ABOVE || mode == H1V2_BELOW ? x : x >> 1);
    ptrdiff_t other = x & 1 ? i + 1 : i - 1; /* one sample beyond the row, at its edges */
    if (mode == H2V1) return (3 * near[i] + near[other] + (x & 1 ? 2 : 1)) >> 2;
    if (mode == H1V2_ABOVE) return (3 * near[i] + far[i] + 1) >> 2;
    if (mode == H1V2_BELOW) return (3 * near[i] + far[i] + 2) >> 2;
    if (mode == H2V2) return (3 * (3 * near[i] + far[i]) + 3 * near[other] + far[other] + (x & 1 ? 7 : 8)) >> 4;
    return near[i];
}

/* Columns [x0, x1) as RGB. jdcolor.c: 16 fractional bits. */
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

/* ---- SIMD: the last part of this file ---- */

/* Zigzag positions outside the 4 x 4 lowest frequencies, and outside the 4 leftmost columns. */
static const uint64_t OUTSIDE_4X4 = 0xfffffffffef9c400, OUTSIDE_4_COLUMNS = 0xfffc7f80fe01c000;

/* Shuffles that move one channel's bytes of 16 pixels (even columns first) to their places in 3 x 16 bytes. */
static const uint8_t SPREAD[3][16] = {
    {0, 13, 3, 8, 6, 11, 1, 14, 4, 9, 7, 12, 2, 15, 5, 10},
    {10, 0, 13, 3, 8, 6, 11, 1, 14, 4, 9, 7, 12, 2, 15, 5},
    {5, 10, 0, 13, 3, 8, 6, 11, 1, 14, 4, 9, 7, 12, 2, 15},
};
static const uint8_t IS_FIRST[16] = {255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255};
static const uint8_t IS_SECOND[16] = {0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0};

/* Blocks that are sorted at a time. */
enum { MOST_BLOCKS = 128 };

enum { PLAIN = 1, SSE41, AVX2, NEON };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define VECTOR __m128i
#define HALF __m128i
#define LANES 1
#define TARGET __attribute__((target("sse4.1")))
#define MM(operation) _mm_##operation
#define P(name) name##_sse41
#include "decoder.c"
#define VECTOR __m256i
#define HALF __m256i
#define LANES 2
#define TARGET __attribute__((target("avx2")))
#define MM(operation) _mm256_##operation
#define P(name) name##_avx2
#include "decoder.c"
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
#include "decoder.c"
#define IF_ARM(...) __VA_ARGS__
#else
#define IF_ARM(...)
#endif

/* The best path of this machine, or the one that PCR_EXP_SIMD names if the machine has it. Determined once. */
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

/* Turns a row of `count` blocks into `size` rows of count * size samples. `size` (8, 4, 2, 1) is the component's. */
static void idct_row(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser, int size,
                     uint8_t *out, ptrdiff_t stride) {
    if (size < 4) idct_row_plain(coefs, masks, count, quantiser, size, out, stride);
    else BY_PATH(idct_row, coefs, masks, count, quantiser, size, out, stride);
}

/* Columns [x0, x1) as RGB. */
static void colour_row(const Row *row, int mode, size_t x0, size_t x1, uint8_t *rgb) {
    BY_PATH(colour_row, row, mode, x0, x1, rgb);
}

/* ==== From a file to blocks, and to an image ==== */

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif
#define INLINED static inline __attribute__((always_inline))
#define RARELY(condition) __builtin_expect(!!(condition), 0)

enum { OK = 0, UNSUPPORTED = 1, NO_MEMORY = 2 };
enum { SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, DHT = 0xC4, RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9 };
enum { SOS = 0xDA, DQT = 0xDB, DRI = 0xDD, APP0 = 0xE0, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE };
enum { MAX_COMPONENTS = 3, NUM_TABLES = 4, MAX_SCANS = 64, MAX_BITS = 14, LARGEST_SIDE_PX = 65500 };
enum { LONGEST_CODE = 16, LARGEST_DC_SIZE = 11, LARGEST_AC_SIZE = 10 };
enum { PADDING_BYTES = 64, NUM_SLOTS = 2, CHUNK_BLOCKS = 1536 };
enum { LONGEST_BLOCK_BYTES = 256 }; /* 27 bits for DC, 26 for each AC coefficient, and one load */
static const uint64_t MOST_PIXELS = (uint64_t)1 << 28;

/* Zigzag position to place in the block. Positions behind the last map to DC's place, as DC is stored elsewhere. */
static const uint8_t NATURAL[64 + 256] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* ---- Huffman tables ----
 *
 * The next bits (LOOKUP_BITS for the kind of table) select an entry, which describes a whole symbol: the length of its
 * code and of what follows it, how far it moves on, and its value. An entry is 0 if these bits do not suffice. From the
 * low end:
 *   6 bits: how many bits the symbol takes
 *   1 bit: whether there is a value (first passes), or whether blocks without symbols follow (refinements)
 *   from bit 8: how many positions it moves on, BEHIND_BLOCK at a block's end (first passes);
 *   or, in refinements, whether there is a value (bit 14), and whether it is negative (bit 15)
 *   16 bits: the value, or how many blocks without symbols follow; in refinements, 1 << number of zeros passed */
typedef enum { DC_SYMBOLS, SEQUENTIAL_AC, FIRST_AC, REFINED_AC } Symbols;
enum { MOST_LOOKUP_BITS = 11 };
static const int LOOKUP_BITS[] = {9, 11, 11, 10};
enum { SYMBOLS_A_WORD = 5 }; /* at least 57 bits, 11 for each */
enum { LENGTH = 63, HAS_VALUE_SHIFT = 6, MOVE_SHIFT = 8, MOVE = 255, BEHIND_BLOCK = 255, VALUE_SHIFT = 16 };
enum { IS_RUN = 1 << 6, REFINES_SHIFT = 14, REFINES = 1 << REFINES_SHIFT, IS_NEGATIVE = 1 << 15 };

typedef struct {
    int32_t entries[1 << MOST_LOOKUP_BITS];
    int32_t end[LONGEST_CODE + 1];   /* first code after those of this length, left-aligned in 16 bits */
    int32_t shift[LONGEST_CODE + 1]; /* added to a code of this length gives its index in `symbols` */
    const uint8_t *symbols;
    Symbols kind;
    int low_bit;
} Table;

/* The entry for `bits`; the kind is a compile-time constant. */
INLINED int32_t entry_at(const Table *table, Symbols kind, uint64_t bits) {
    return table->entries[bits & ((1u << LOOKUP_BITS[kind]) - 1)];
}

#define FOUR(n) n, n + 128, n + 64, n + 192
#define SIXTEEN(n) FOUR(n), FOUR(n + 32), FOUR(n + 16), FOUR(n + 48)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN(n + 8), SIXTEEN(n + 4), SIXTEEN(n + 12)
static const uint8_t REVERSED[256] = {SIXTY_FOUR(0), SIXTY_FOUR(2), SIXTY_FOUR(1), SIXTY_FOUR(3)};

/* Up to 16 bits in reverse order. */
static inline uint32_t reversed(uint32_t bits, int count) {
    return ((uint32_t)REVERSED[bits & 255] << 8 | REVERSED[bits >> 8 & 255]) >> (16 - count);
}

/* EXTEND of T.81 F.2.2.1, for bits that are read from the low end. */
static inline int32_t extended(uint32_t bits, int size) {
    int32_t value = (int32_t)reversed(bits & ((1u << size) - 1), size);
    return bits & 1 ? value : value - (1 << size) + 1;
}

/* Number of bits that follow the code of a symbol. */
static inline int bits_behind(Symbols kind, int symbol) {
    int run = symbol >> 4, size = symbol & 15;
    return kind == DC_SYMBOLS || size ? size : run == 15 ? 0 : run;
}

/* The entry of a symbol; `bits` are those after its code. 0 if there is no such symbol. */
static inline int32_t entry_of(Symbols kind, int low_bit, int symbol, int length, uint32_t bits) {
    int run = symbol >> 4, size = symbol & 15;
    uint32_t value, flags = 0;
    length += bits_behind(kind, symbol);
    if (kind == DC_SYMBOLS) {
        if (symbol > LARGEST_DC_SIZE) return 0;
        value = (uint32_t)extended(bits, size);
    } else if (size == 0 && run < 15) { /* EOBn */
        if (kind == SEQUENTIAL_AC && run) return 0;
        value = (1u << run) - 1 + reversed(bits & ((1u << run) - 1), run);
        flags = kind == REFINED_AC ? (run ? IS_RUN : 0) : BEHIND_BLOCK << MOVE_SHIFT;
    } else if (kind == REFINED_AC) {
        if (size > 1) return 0;
        value = 1u << run;
        flags = size == 0 ? 0 : bits & 1 ? REFINES : REFINES | IS_NEGATIVE;
    } else {
        if (size > LARGEST_AC_SIZE || size + low_bit > MAX_BITS) return 0;
        value = size == 0 ? 0 : (uint32_t)extended(bits, size) << low_bit;
        flags = (uint32_t)(run + 1) << MOVE_SHIFT | (size ? 1u << HAS_VALUE_SHIFT : 0);
    }
    return (int32_t)(value << VALUE_SHIFT | flags | (uint32_t)length);
}

/* `counts`: a table in the format of DHT segments, after its class and number; already checked. */
static void build_table(Table *table, const uint8_t *counts, Symbols kind, int low_bit) {
    int code = 0, k = 0, lookup_bits = LOOKUP_BITS[kind];
    memset(table->entries, 0, sizeof *table->entries << lookup_bits);
    table->symbols = counts + LONGEST_CODE, table->kind = kind, table->low_bit = low_bit;
    for (int length = 1; length <= LONGEST_CODE; length++, code <<= 1) {
        table->shift[length] = k - code;
        for (int i = 0; i < counts[length - 1]; i++, k++, code++) {
            int symbol = table->symbols[k], known = length + bits_behind(kind, symbol);
            if (known > lookup_bits) continue;
            uint32_t read = reversed((uint32_t)code, length);
            for (uint32_t bits = 0; bits < 1u << (known - length); bits++) {
                int32_t entry = entry_of(kind, low_bit, symbol, length, bits);
                for (uint32_t at = read | bits << length; at < 1u << lookup_bits; at += 1u << known)
                    table->entries[at] = entry;
            }
        }
        table->end[length] = code << (LONGEST_CODE - length);
    }
}

/* The entry of a symbol whose code, or the bits after it, exceed the lookup. */
static __attribute__((noinline)) int32_t long_entry(const Table *table, uint64_t word) {
    int32_t aligned = (int32_t)reversed(word & 0xFFFF, 16);
    int length = 1;
    while (length <= LONGEST_CODE && aligned >= table->end[length]) length++;
    if (length > LONGEST_CODE) return 0;
    int index = (aligned >> (LONGEST_CODE - length)) + table->shift[length];
    return entry_of(table->kind, table->low_bit, table->symbols[index], length, (uint32_t)(word >> length));
}

/* ---- Headers ---- */

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Piece;

typedef struct {
    int id, h, v, quantiser_table, has_scan;
    int columns, rows;   /* in blocks */
    int padded, stride;  /* blocks per row, including those that fill up the last MCU; blocks from row to row */
    int8_t bits[64];     /* by zigzag position, the lowest bit received; -1: none */
} Component;

typedef struct {
    int num_components, components[MAX_COMPONENTS], first, last, high_bit, low_bit;
    const uint8_t *dc_tables[MAX_COMPONENTS], *ac_tables[MAX_COMPONENTS];
    const uint8_t *data, *data_end;
    int restart_interval, num_segments;
} ScanHeader;

typedef struct {
    int height_px, width_px, is_progressive, num_components, max_h, max_v, mcu_columns, mcu_rows;
    int colours_known, is_jfif, adobe_transform, restart_interval, num_scans, is_complete;
    Component components[MAX_COMPONENTS];
    const uint8_t *quantisers[NUM_TABLES]; /* in DQT format, from the byte of size and number on */
    const uint8_t *tables[2][NUM_TABLES];  /* in DHT format, DC and AC */
    ScanHeader scans[MAX_SCANS];
} Header;

static int be16(const uint8_t *at) { return at[0] << 8 | at[1]; }

static int ceiling(int a, int b) { return (a + b - 1) / b; }

/* T.81 B.2.4.1. */
static int read_quantisers(Header *header, const uint8_t *at, const uint8_t *end) {
    if (header->num_scans) return UNSUPPORTED; /* components take their tables at their first scan */
    while (at < end) {
        int is_wide = *at >> 4, number = *at & 15;
        if (is_wide > 1 || number >= NUM_TABLES || end - at < 1 + 64 * (1 + is_wide)) return UNSUPPORTED;
        header->quantisers[number] = at;
        at += 1 + 64 * (1 + is_wide);
    }
    return OK;
}

/* T.81 B.2.4.2 and C.2. */
static int read_huffman(Header *header, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        int is_ac = *at >> 4, number = *at & 15, num_symbols = 0, code = 0;
        if (end - at < 1 + LONGEST_CODE || is_ac > 1 || number >= NUM_TABLES) return UNSUPPORTED;
        const uint8_t *counts = at + 1;
        for (int i = 0; i < LONGEST_CODE; i++, code <<= 1) {
            num_symbols += counts[i], code += counts[i];
            if (code >= 1 << (i + 1) && num_symbols) return UNSUPPORTED; /* all ones is not a code */
        }
        at = counts + LONGEST_CODE;
        if (num_symbols < 1 || num_symbols > 256 || end - at < num_symbols) return UNSUPPORTED;
        for (int i = 0; i < num_symbols && !is_ac; i++)
            if (at[i] > 15) return UNSUPPORTED;
        header->tables[is_ac][number] = counts;
        at += num_symbols;
    }
    return OK;
}

/* T.81 B.2.2, for the common subsamplings: 4:4:4, 4:2:2, 4:4:0, 4:2:0 and grey. */
static int read_frame(Header *header, const uint8_t *at, const uint8_t *end) {
    if (header->num_components || end - at < 6 || at[0] != 8) return UNSUPPORTED;
    int height = header->height_px = be16(at + 1), width = header->width_px = be16(at + 3), count = at[5];
    if ((count != 1 && count != 3) || end - at != 6 + 3 * count) return UNSUPPORTED;
    if (height < 1 || width < 1 || height > LARGEST_SIDE_PX || width > LARGEST_SIDE_PX) return UNSUPPORTED;
    if ((uint64_t)height * (uint64_t)width > MOST_PIXELS) return UNSUPPORTED;
    header->num_components = count;
    for (int i = 0; i < count; i++) {
        Component *component = &header->components[i];
        const uint8_t *fields = at + 6 + 3 * i;
        component->id = fields[0], component->h = fields[1] >> 4, component->v = fields[1] & 15;
        component->quantiser_table = fields[2];
        if (fields[2] >= NUM_TABLES || component->h < 1 || component->v < 1) return UNSUPPORTED;
        if (component->h > 4 || component->v > 4) return UNSUPPORTED;
        if (count == 1) component->h = component->v = 1; /* it has MCUs of one block, whatever its factors */
        if (component->h > (i == 0 ? 2 : 1) || component->v > (i == 0 ? 2 : 1)) return UNSUPPORTED;
        memset(component->bits, -1, sizeof component->bits);
    }
    header->max_h = header->components[0].h, header->max_v = header->components[0].v;
    header->mcu_columns = ceiling(width, 8 * header->max_h), header->mcu_rows = ceiling(height, 8 * header->max_v);
    for (int i = 0; i < count; i++) {
        Component *component = &header->components[i];
        component->columns = ceiling(width * component->h, 8 * header->max_h);
        component->rows = ceiling(height * component->v, 8 * header->max_v);
        component->padded = header->mcu_columns * component->h;
        component->stride = header->is_progressive ? component->columns : component->padded;
    }
    return OK;
}

/* Whether the image is grey, or YCbCr by libjpeg's rules (jdapimin.c, default_decompress_parms). */
static int is_known_colour(const Header *header) {
    const Component *of = header->components;
    if (header->num_components == 1 || header->is_jfif) return 1;
    if (header->adobe_transform >= 0) return header->adobe_transform == 1;
    return of[0].id == 1 && of[1].id == 2 && of[2].id == 3;
}

/* A scan's band must be new, or refine what was received by one bit (T.81 G.1.1.1, and jdphuff.c's warnings). */
static int follow_bits(Component *component, const ScanHeader *scan) {
    if (scan->first > 0 && component->bits[0] < 0) return UNSUPPORTED;
    for (int k = scan->first; k <= scan->last; k++) {
        int expected = scan->high_bit ? scan->high_bit : -1;
        if (component->bits[k] != expected) return UNSUPPORTED;
        component->bits[k] = (int8_t)scan->low_bit;
    }
    return OK;
}

/* T.81 B.2.3. */
static int read_scan(Header *header, const uint8_t *at, const uint8_t *end) {
    if (!header->num_components || header->num_scans >= MAX_SCANS || end - at < 6) return UNSUPPORTED;
    ScanHeader *scan = &header->scans[header->num_scans];
    *scan = (ScanHeader){.num_components = at[0]};
    int count = at[0];
    if (count < 1 || count > header->num_components || end - at != 4 + 2 * count) return UNSUPPORTED;
    const uint8_t *spectrum = at + 1 + 2 * count; /* Ss, Se, Ah << 4 | Al */
    scan->first = spectrum[0], scan->last = spectrum[1];
    scan->high_bit = spectrum[2] >> 4, scan->low_bit = spectrum[2] & 15;
    if (!header->is_progressive) {
        if (scan->first != 0 || scan->last != 63 || spectrum[2]) return UNSUPPORTED;
    } else {
        if (scan->first > scan->last || scan->last > 63 || scan->low_bit >= MAX_BITS) return UNSUPPORTED;
        if (scan->first == 0 ? scan->last != 0 : count != 1) return UNSUPPORTED;
        if (scan->high_bit && scan->high_bit != scan->low_bit + 1) return UNSUPPORTED;
    }
    for (int i = 0, number = -1; i < count; i++) {
        int id = at[1 + 2 * i], dc = at[2 + 2 * i] >> 4, ac = at[2 + 2 * i] & 15;
        do number++;
        while (number < header->num_components && header->components[number].id != id);
        if (number >= header->num_components) return UNSUPPORTED; /* they must be in the frame's order */
        Component *component = &header->components[number];
        if (!header->quantisers[component->quantiser_table]) return UNSUPPORTED;
        if (follow_bits(component, scan) != OK) return UNSUPPORTED;
        scan->components[i] = number;
        component->has_scan = 1;
        if (scan->first == 0 && !scan->high_bit) {
            if (dc >= NUM_TABLES || !header->tables[0][dc]) return UNSUPPORTED;
            scan->dc_tables[i] = header->tables[0][dc];
        }
        if (scan->last > 0) {
            if (ac >= NUM_TABLES || !header->tables[1][ac]) return UNSUPPORTED;
            scan->ac_tables[i] = header->tables[1][ac];
        }
    }
    scan->restart_interval = header->restart_interval;
    return OK;
}

/* Units in a row of a scan, which restart intervals count: blocks if it has one component, else MCUs. */
static int units_per_row(const Header *header, const ScanHeader *scan) {
    return scan->num_components == 1 ? header->components[scan->components[0]].columns : header->mcu_columns;
}

static int unit_rows(const Header *header, const ScanHeader *scan) {
    return scan->num_components == 1 ? header->components[scan->components[0]].rows : header->mcu_rows;
}

/* Finds the end of a scan's entropy-coded data: the next marker, else `end`. NULL if anything is irregular. */
static const uint8_t *find_scan_end(const Header *header, ScanHeader *scan, const uint8_t *at, const uint8_t *end) {
    scan->data = at, scan->num_segments = 1;
    while (at < end) {
        const uint8_t *found = memchr(at, 0xFF, (size_t)(end - at));
        if (!found) break;
        const uint8_t *code = found + 1;
        while (code < end && *code == 0xFF) code++; /* fill bytes */
        if (code == end) return NULL;
        if (*code == 0 && code == found + 1) {
            at = code + 1;
        } else if (*code >= RST0 && *code <= RST7) {
            if (!scan->restart_interval || *code != RST0 + ((scan->num_segments - 1) & 7)) return NULL;
            scan->num_segments++;
            at = code + 1;
        } else if (*code == 0) {
            return NULL;
        } else {
            end = found;
            break;
        }
    }
    scan->data_end = end;
    if (!scan->restart_interval) return end;
    int64_t units = (int64_t)units_per_row(header, scan) * unit_rows(header, scan);
    int64_t wanted = (units + scan->restart_interval - 1) / scan->restart_interval;
    return scan->num_segments == wanted ? end : NULL;
}

/* Reads a segment that is not a scan; `at` is behind its length field. */
static int read_segment(Header *header, int code, const uint8_t *at, const uint8_t *end) {
    ptrdiff_t size = end - at;
    switch (code) {
    case SOF0: case SOF1: case SOF2:
        header->is_progressive = code == SOF2;
        return read_frame(header, at, end);
    case DHT: return read_huffman(header, at, end);
    case DQT: return read_quantisers(header, at, end);
    case DRI:
        if (size != 2) return UNSUPPORTED;
        header->restart_interval = be16(at);
        return OK;
    case APP0: /* libjpeg warns about other versions */
        if (size < 14 || memcmp(at, "JFIF", 5)) return OK;
        header->is_jfif = 1;
        return at[5] == 1 ? OK : UNSUPPORTED;
    case APP14:
        if (size >= 12 && !memcmp(at, "Adobe", 5)) header->adobe_transform = at[11];
        return OK;
    default: return code == COM || (code > APP0 && code <= APP15) ? OK : UNSUPPORTED;
    }
}

/* Reads all headers, or (frame_only) those before the first scan. No segment and no scan spans two pieces. */
static int read_header(Header *header, const Piece *pieces, size_t num_pieces, int frame_only) {
    memset(header, 0, offsetof(Header, scans));
    header->adobe_transform = -1;
    int is_first = 1;
    for (size_t i = 0; i < num_pieces; i++) {
        const uint8_t *at = pieces[i].bytes, *end = at + pieces[i].size;
        if (at == end) continue;
        if (is_first) {
            if (end - at < 2 || at[0] != 0xFF || at[1] != SOI) return UNSUPPORTED;
            at += 2, is_first = 0;
        }
        while (at < end) {
            if (*at != 0xFF) return UNSUPPORTED;
            while (at < end && *at == 0xFF) at++;
            if (at == end) return UNSUPPORTED;
            int code = *at++;
            if (code == EOI) return header->num_scans && is_known_colour(header) ? OK : UNSUPPORTED;
            if (end - at < 2) return UNSUPPORTED;
            int length = be16(at);
            if (length < 2 || end - at < length) return UNSUPPORTED;
            const uint8_t *payload = at + 2;
            at += length;
            if (code != SOS) {
                if (read_segment(header, code, payload, at) != OK) return UNSUPPORTED;
                continue;
            }
            ScanHeader *scan = &header->scans[header->num_scans];
            if (!header->num_components) return UNSUPPORTED;
            if (frame_only) return is_known_colour(header) ? OK : UNSUPPORTED;
            if (read_scan(header, payload, at) != OK) return UNSUPPORTED;
            at = find_scan_end(header, scan, at, end);
            if (!at) return UNSUPPORTED;
            header->num_scans++;
        }
    }
    return UNSUPPORTED;
}

/* ---- Bits ---- */

INLINED uint64_t load64(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Position of a bit: 8 times its byte's address, plus its number in the byte. */
typedef uint64_t Position;

static inline Position position_of(const uint8_t *at) { return 8 * (uint64_t)(uintptr_t)at; }

INLINED const uint8_t *byte_at(Position position) { return (const uint8_t *)(uintptr_t)(position >> 3); }

/* At least 57 bits from `position` on. */
INLINED uint64_t bits_at(Position position) { return load64(byte_at(position)) >> (position & 7); }

/* All 64 bits from `position` on. */
static inline uint64_t wide_bits_at(Position position) {
    const uint8_t *at = byte_at(position);
    unsigned shift = position & 7;
    return load64(at) >> shift | (uint64_t)at[8] << 1 << (63 - shift);
}

INLINED void reverse_all(uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = bytes[i];
        byte = (uint8_t)((byte & 0x55) << 1 | (byte >> 1 & 0x55));
        byte = (uint8_t)((byte & 0x33) << 2 | (byte >> 2 & 0x33));
        bytes[i] = (uint8_t)(byte << 4 | byte >> 4);
    }
}

static void reverse_plain(uint8_t *bytes, size_t size) { reverse_all(bytes, size); }
IF_X86(__attribute__((target("avx2"))) static void reverse_avx2(uint8_t *bytes, size_t size) { reverse_all(bytes, size); })

static void reverse_bytes(uint8_t *bytes, size_t size) {
    IF_X86(if (simd_path() == AVX2) {
        reverse_avx2(bytes, size);
        return;
    })
    reverse_plain(bytes, size);
}

/* Entropy-coded bits between restarts. */
typedef struct {
    Position first, end;
} Segment;

/* Copies a scan's bytes, bit-reversed and without the zero after each FF (T.81 B.1.1.5). Zeros follow each segment. */
static uint8_t *unstuff(const ScanHeader *scan, uint8_t *out, Segment *segments) {
    uint8_t *to = out, *first = out;
    const uint8_t *from = scan->data, *end = scan->data_end;
    for (int i = 0;;) {
        const uint8_t *marker = from < end ? memchr(from, 0xFF, (size_t)(end - from)) : NULL;
        size_t count = (size_t)((marker ? marker : end) - from);
        memcpy(to, from, count);
        to += count;
        if (marker && marker[1] == 0) {
            *to++ = 0xFF, from = marker + 2;
            continue;
        }
        segments[i++] = (Segment){position_of(first), position_of(to)};
        memset(to, 0, PADDING_BYTES);
        to += PADDING_BYTES, first = to;
        if (!marker) break;
        while (*marker == 0xFF) marker++;
        from = marker + 1;
    }
    reverse_bytes(out, (size_t)(to - out));
    memset(to, 0, LONGEST_BLOCK_BYTES); /* the end is checked only after a whole sequential block */
    return to;
}

/* ---- Lanes ----
 *
 * A lane is an AC scan in progress through a chunk's blocks. A step decodes one symbol. */

/* State that a step changes; it stays in registers. */
typedef struct {
    Position position;
    size_t block;
    uint64_t left; /* of the band: its next position (first passes), or a mask of all positions ahead (refinements) */
} State;

typedef struct {
    State state;
    const Table *table;
    Position end_position;
    size_t end_block;
    int16_t *coefs;
    uint64_t *masks;
    uint64_t band; /* `left` at the beginning of a block */
    uint64_t behind;          /* first passes: the position behind the band */
    uint64_t *corrections;    /* refinements */
    int16_t values[4];        /* refinements: by whether there is a value, and its sign */
    uint64_t kept[4];         /* refinements: all ones if there is a value */
    int32_t run;              /* blocks without symbols that follow */
    int is_bad;
} Lane;

/* The set bit number n of `mask`, for nth = 1 << n; 0 if `nth` is 0 or there are too few. */
INLINED uint64_t nth_bit(uint64_t mask, uint64_t nth, int has_pdep) {
#if defined(__x86_64__)
    if (has_pdep) {
        uint64_t found;
        __asm__("pdep %2, %1, %0" : "=r"(found) : "r"(nth), "r"(mask));
        return found;
    }
#endif
    (void)has_pdep;
    if (!nth) return 0;
    for (; mask && !(nth & 1); nth >>= 1) mask &= mask - 1;
    return mask & -mask;
}

/* The number of the bit; 64 if there is none. */
INLINED unsigned place_of(uint64_t bit, int has_pdep) {
#if defined(__x86_64__)
    if (has_pdep) {
        uint64_t place;
        __asm__("tzcnt %1, %0" : "=r"(place) : "r"(bit) : "cc");
        return (unsigned)place;
    }
#endif
    (void)has_pdep;
    return bit ? (unsigned)__builtin_ctzll(bit) : 64;
}

/* The low bits of `bits`, deposited at the set bits of `mask`. */
INLINED uint64_t deposited(uint64_t bits, uint64_t mask, int has_pdep) {
#if defined(__x86_64__)
    if (has_pdep) {
        uint64_t found;
        __asm__("pdep %2, %1, %0" : "=r"(found) : "r"(bits), "r"(mask));
        return found;
    }
#endif
    (void)has_pdep;
    uint64_t found = 0;
    for (; mask; mask &= mask - 1, bits >>= 1) found |= mask & -mask & -(bits & 1);
    return found;
}

enum { MOST_BITS_A_STEP = 16 + 14 + 64 };

/* Number of steps before the end must be checked again. The last one may pass it, as zeros follow. */
INLINED uint64_t safe_steps(const Lane *lane, const State *state) {
    if (state->position > lane->end_position) return 0;
    return 1 + (lane->end_position - state->position) / MOST_BITS_A_STEP;
}

/* Marks a lane that cannot go on as bad and finished. */
INLINED void give_up(Lane *lane, State *state) { lane->is_bad = 1, state->block = lane->end_block; }

/* `word` has at least LOOKUP_BITS bits from the position on. Returns it without those of the symbol; 0 means that it
 * must be loaded again. */
INLINED uint64_t first_step_in(Lane *lane, State *state, uint64_t word) {
    uint32_t entry = (uint32_t)entry_at(lane->table, FIRST_AC, word);
    if (RARELY(!entry)) {
        if (!(entry = (uint32_t)long_entry(lane->table, bits_at(state->position)))) {
            give_up(lane, state);
            return 0;
        }
        word = 0;
    }
    state->position += entry & LENGTH, word >>= entry & LENGTH;
    uint64_t k = state->left + (uint8_t)(entry >> MOVE_SHIFT);
    int64_t left = (int64_t)(lane->behind - k);
    if (RARELY((uint64_t)(left + 127) < 127)) { /* it moves beyond the band; BEHIND_BLOCK would move further */
        if (entry >> HAS_VALUE_SHIFT & 1) give_up(lane, state);
        else state->left = lane->band, state->block++;
        return word;
    }
    uint32_t value = entry >> VALUE_SHIFT;
    lane->coefs[state->block * 64 + NATURAL[k - 1]] = (int16_t)value;
    lane->masks[state->block] |= (uint64_t)(entry >> HAS_VALUE_SHIFT & 1) << ((k - 1) & 63);
    uint64_t is_done = -(uint64_t)(left <= 0), is_end = -(uint64_t)(left < 0);
    state->block += (value & is_end) - is_done;
    state->left = (k & ~is_done) | (lane->band & is_done);
    return word;
}

INLINED void first_step(Lane *lane, State *state, uint64_t *steps, int has_pdep) {
    (void)steps, (void)has_pdep;
    first_step_in(lane, state, bits_at(state->position));
}

/* Passes `count` blocks without symbols, beginning with the rest of this one: only corrections are read. */
INLINED State refined_run(Lane *lane, State state, int32_t count, int has_pdep) {
    for (; count > 0 && state.block < lane->end_block && state.position <= lane->end_position; count--) {
        uint64_t corrected = lane->masks[state.block] & state.left;
        uint64_t bits = wide_bits_at(state.position);
        lane->corrections[state.block] |= deposited(bits, corrected, has_pdep);
        state.position += (uint64_t)__builtin_popcountll(corrected);
        state.block++, state.left = lane->band;
    }
    lane->run = count;
    return state;
}

#define REFINED_RUN(name, target, has_pdep)                                                     \
    target static __attribute__((noinline)) State name(Lane *lane, State state, int32_t count) { \
        return refined_run(lane, state, count, has_pdep);                                       \
    }
REFINED_RUN(refined_run_plain, , 0)
#if defined(__x86_64__)
#define WITH_PDEP __attribute__((target("bmi,bmi2,lzcnt,popcnt")))
REFINED_RUN(refined_run_pdep, WITH_PDEP, 1)
#else
#define refined_run_pdep refined_run_plain
#endif

INLINED void refining_step(Lane *lane, State *state, uint64_t *steps, int has_pdep) {
    uint64_t word = bits_at(state->position);
    uint32_t entry = (uint32_t)entry_at(lane->table, REFINED_AC, word);
    if (RARELY(!entry) && !(entry = (uint32_t)long_entry(lane->table, word))) {
        give_up(lane, state);
        return;
    }
    if (RARELY(entry & IS_RUN)) {
        state->position += entry & LENGTH;
        int32_t count = 1 + (int32_t)(entry >> VALUE_SHIFT);
        *state = has_pdep ? refined_run_pdep(lane, *state, count) : refined_run_plain(lane, *state, count);
        *steps = 1; /* it may have taken more bits than a step does */
        return;
    }
    uint64_t mask = lane->masks[state->block], left = state->left, bits = word >> (entry & LENGTH);
    uint64_t found = nth_bit(left & ~mask, entry >> VALUE_SHIFT, has_pdep), passed = found ^ (found - 1);
    uint64_t corrected = left & mask & passed;
    unsigned count = (unsigned)__builtin_popcountll(corrected) + (entry & LENGTH);
    if (RARELY(count > 57)) bits = wide_bits_at(state->position + (entry & LENGTH));
    lane->corrections[state->block] |= deposited(bits, corrected, has_pdep);
    state->position += count;
    unsigned place = place_of(found, has_pdep);
    if (RARELY(place & entry >> (REFINES_SHIFT - 6))) { /* a value without a place: each sets bit 6 */
        give_up(lane, state);
        return;
    }
    lane->coefs[state->block * 64 + NATURAL[place]] = lane->values[entry >> REFINES_SHIFT & 3];
    lane->masks[state->block] = mask | (found & lane->kept[entry >> REFINES_SHIFT & 3]);
    left &= ~passed;
    uint64_t is_done = -(uint64_t)(left == 0);
    state->block -= is_done;
    state->left = left | (lane->band & is_done);
}

/* Runs both lanes until one is finished. */
#define LANES(name, target, step, other_step, has_pdep)                                  \
    target static void name(Lane *lane, Lane *other) {                                   \
        State a = lane->state, b = other->state;                                         \
        while (a.block < lane->end_block && b.block < other->end_block) {                \
            uint64_t steps = safe_steps(lane, &a), others = safe_steps(other, &b);       \
            steps = steps < others ? steps : others;                                     \
            if (!steps) break;                                                           \
            do {                                                                         \
                step(lane, &a, &steps, has_pdep);                                        \
                other_step(other, &b, &steps, has_pdep);                                 \
            } while (--steps && a.block < lane->end_block && b.block < other->end_block); \
        }                                                                                \
        lane->state = a, other->state = b;                                               \
    }
/* A lane alone hides no latency, so bits are kept for the next symbols instead of being loaded for each. */
#define LANE_OF_FIRST(name, target)                                                         \
    target static void name(Lane *lane) {                                                   \
        State a = lane->state;                                                              \
        while (a.block < lane->end_block && a.position <= lane->end_position) {             \
            uint64_t word = bits_at(a.position);                                            \
            int num_known = SYMBOLS_A_WORD;                                                 \
            do word = first_step_in(lane, &a, word);                                        \
            while (word && --num_known && a.block < lane->end_block);                       \
        }                                                                                   \
        lane->state = a;                                                                    \
    }
#define LANE_OF_REFINING(name, target, has_pdep)                                 \
    target static void name(Lane *lane) {                                        \
        State a = lane->state;                                                   \
        uint64_t steps = 1;                                                      \
        while (a.block < lane->end_block && a.position <= lane->end_position)    \
            refining_step(lane, &a, &steps, has_pdep);                           \
        lane->state = a;                                                         \
    }
#define ALL_LANES(suffix, target, has_pdep)                                           \
    LANES(both_first_##suffix, target, first_step, first_step, has_pdep)              \
    LANES(first_and_refining_##suffix, target, first_step, refining_step, has_pdep)   \
    LANES(both_refining_##suffix, target, refining_step, refining_step, has_pdep)     \
    LANE_OF_FIRST(first_##suffix, target)                                             \
    LANE_OF_REFINING(refining_##suffix, target, has_pdep)

ALL_LANES(plain, , 0)
#if defined(__x86_64__)
ALL_LANES(pdep, WITH_PDEP, 1)
#endif

static int is_open(const Lane *lane) {
    return lane->state.block < lane->end_block && lane->state.position <= lane->end_position;
}

/* ---- Scans ---- */

typedef struct {
    int16_t *coefs;                    /* [blocks][64], natural order, without DC */
    uint64_t *masks;                   /* [blocks], bit k: zigzag position k is not zero */
    int16_t *dc;                       /* [rows][padded] */
    uint64_t *corrections[MAX_BITS];   /* by bit position, [blocks] */
} Slot;

typedef struct {
    const ScanHeader *header;
    Table *dc_tables[MAX_COMPONENTS], *ac_tables[MAX_COMPONENTS];
    uint8_t *stream;
    Segment *segments;
    uint64_t before; /* bit set of the scans that must finish a chunk first */
    int chunk;       /* the next one */
    int segment;
    uint64_t position;
    int64_t left;   /* units up to the next restart */
    int32_t run;    /* blocks without symbols that follow (EOBRUN) */
    int32_t predicted[MAX_COMPONENTS];
    size_t block, num_blocks; /* of the chunk (AC scans) */
} Scan;

typedef struct {
    const Header *header;
    Scan scans[MAX_SCANS];
    int num_scans;
    Slot slots[NUM_SLOTS][MAX_COMPONENTS];
    int rows_per_chunk, num_rows, num_chunks, num_shown; /* rows of MCUs; chunks wanted, and shown */
    int has_pdep;
    Lane lanes[2];
    Scan *of_lane[2];
    Quantiser quantisers[MAX_COMPONENTS];
    void *memory;
} Decoder;

/* Number of MCU rows in a chunk. */
static int rows_of_chunk(const Decoder *decoder, int chunk) {
    int left = decoder->num_rows - chunk * decoder->rows_per_chunk;
    return left < decoder->rows_per_chunk ? left : decoder->rows_per_chunk;
}

/* Number of a component's block rows in a chunk. The last chunk ends with the image. */
static int block_rows_of_chunk(const Decoder *decoder, int chunk, const Component *component) {
    int first = chunk * decoder->rows_per_chunk * component->v;
    int last = first + rows_of_chunk(decoder, chunk) * component->v;
    return (last < component->rows ? last : component->rows) - first;
}

static int is_at_the_end(const Scan *scan) {
    const Segment *segment = &scan->segments[scan->segment];
    return scan->position <= segment->end && segment->end - scan->position < 8 && scan->run == 0;
}

/* Called before units: begins a new segment where one is due. */
static int restarted(Scan *scan) {
    if (scan->left > 0) return OK;
    if (!is_at_the_end(scan)) return UNSUPPORTED;
    scan->segment++;
    if (scan->segment >= scan->header->num_segments) return UNSUPPORTED;
    scan->position = scan->segments[scan->segment].first;
    scan->left = scan->header->restart_interval;
    memset(scan->predicted, 0, sizeof scan->predicted);
    return OK;
}

/* The blocks of an MCU (a scan of one component has one), and where they are in a row. */
typedef struct {
    int count, components[6]; /* numbers within the scan */
    int16_t *dc[6], *coefs[6];
    uint64_t *masks[6];
    int steps[6];
} Blocks;

static void blocks_of_row(const Decoder *decoder, const Scan *scan, size_t row, Blocks *blocks) {
    const ScanHeader *header = scan->header;
    int is_alone = header->num_components == 1;
    blocks->count = 0;
    for (int i = 0; i < header->num_components; i++) {
        const Component *component = &decoder->header->components[header->components[i]];
        const Slot *slot = &decoder->slots[scan->chunk % NUM_SLOTS][header->components[i]];
        int h = is_alone ? 1 : component->h, v = is_alone ? 1 : component->v;
        for (int j = 0; j < h * v; j++) {
            size_t y = row * (size_t)v + (size_t)(j / h), x = (size_t)(j % h);
            int n = blocks->count++;
            blocks->components[n] = i, blocks->steps[n] = h;
            blocks->dc[n] = slot->dc + y * (size_t)component->padded + x;
            blocks->masks[n] = slot->masks + y * (size_t)component->stride + x;
            blocks->coefs[n] = slot->coefs + (y * (size_t)component->stride + x) * 64;
        }
    }
}

/* Decodes `count` units of a refining DC scan, one bit per block. */
static int refine_dc(Scan *scan, Blocks *blocks, size_t count) {
    Position position = scan->position, end = scan->segments[scan->segment].end;
    int low_bit = scan->header->low_bit;
    for (; count && position <= end; count--, position += (uint64_t)blocks->count) {
        uint64_t word = bits_at(position);
        for (int i = 0; i < blocks->count; i++, word >>= 1) {
            *blocks->dc[i] |= (int16_t)((word & 1) << low_bit);
            blocks->dc[i] += blocks->steps[i];
        }
    }
    scan->position = position;
    return position <= end ? OK : UNSUPPORTED;
}

/* Decodes `count` units of a first DC scan. Bits are loaded for two blocks at a time: 54 at most. */
static int decode_dc(Scan *scan, Blocks *blocks, size_t count) {
    Position position = scan->position, end = scan->segments[scan->segment].end;
    int low_bit = scan->header->low_bit;
    int32_t is_bad = 0;
    for (; count && position <= end; count--) {
        uint64_t word = 0;
        for (int i = 0; i < blocks->count; i++) {
            int component = blocks->components[i];
            const Table *table = scan->dc_tables[component];
            if (!(i & 1)) word = bits_at(position);
            int32_t entry = entry_at(table, DC_SYMBOLS, word);
            if (RARELY(!entry) && !(entry = long_entry(table, word))) return UNSUPPORTED;
            word >>= entry & LENGTH;
            position += entry & LENGTH;
            int64_t value = (int64_t)(scan->predicted[component] += entry >> VALUE_SHIFT) * (1 << low_bit);
            int16_t *at = blocks->dc[i];
            *at = (int16_t)value;
            is_bad |= value != *at;
            blocks->dc[i] = at + blocks->steps[i];
        }
    }
    scan->position = position;
    return position <= end && !is_bad ? OK : UNSUPPORTED;
}

/* Decodes `count` units of a sequential scan. */
static int decode_sequential(Scan *scan, Blocks *blocks, size_t count) {
    uint64_t position = scan->position, end = scan->segments[scan->segment].end;
    int32_t is_bad = 0;
    for (; count; count--) {
        for (int i = 0; i < blocks->count; i++) {
            int component = blocks->components[i];
            const Table *table = scan->dc_tables[component];
            uint64_t word = bits_at(position), found = 0;
            int32_t entry = entry_at(table, DC_SYMBOLS, word);
            if (RARELY(!entry) && !(entry = long_entry(table, word))) return UNSUPPORTED;
            position += entry & LENGTH;
            int32_t value = scan->predicted[component] += entry >> VALUE_SHIFT;
            *blocks->dc[i] = (int16_t)value;
            is_bad |= value != (int16_t)value;
            int16_t *coefs = blocks->coefs[i];
            table = scan->ac_tables[component];
            for (unsigned k = 1, num_known = 0; k < 64; num_known--) {
                if (!num_known) word = bits_at(position), num_known = SYMBOLS_A_WORD;
                entry = entry_at(table, SEQUENTIAL_AC, word);
                if (RARELY(!entry)) { /* it may have more bits than are left in `word` */
                    word = bits_at(position), num_known = 1;
                    if (!(entry = long_entry(table, word))) return UNSUPPORTED;
                }
                word >>= entry & LENGTH;
                position += entry & LENGTH;
                k += entry >> MOVE_SHIFT & MOVE;
                if (k > 64) {
                    if (k <= 64 + 16) return UNSUPPORTED;
                    break;
                }
                coefs[NATURAL[k - 1]] = (int16_t)(entry >> VALUE_SHIFT);
                found |= (uint64_t)(entry >> HAS_VALUE_SHIFT & 1) << (k - 1);
            }
            if (position > end) return UNSUPPORTED;
            *blocks->masks[i] = found;
            blocks->dc[i] += blocks->steps[i], blocks->masks[i] += blocks->steps[i];
            blocks->coefs[i] += 64 * blocks->steps[i];
        }
    }
    scan->position = position;
    return is_bad ? UNSUPPORTED : OK;
}

/* Decodes a chunk of a scan that has DC: sequential, or a pass over DC only. */
static int decode_units(Decoder *decoder, Scan *scan) {
    const ScanHeader *header = scan->header;
    const Component *only = &decoder->header->components[header->components[0]];
    int is_alone = header->num_components == 1, rows = rows_of_chunk(decoder, scan->chunk);
    if (is_alone) rows = block_rows_of_chunk(decoder, scan->chunk, only);
    for (int row = 0; row < rows; row++) {
        Blocks blocks;
        blocks_of_row(decoder, scan, (size_t)row, &blocks);
        for (size_t left = (size_t)units_per_row(decoder->header, header), count; left; left -= count) {
            if (restarted(scan) != OK) return UNSUPPORTED;
            count = (uint64_t)scan->left < left ? (size_t)scan->left : left;
            int status = header->last ? decode_sequential(scan, &blocks, count)
                         : header->high_bit ? refine_dc(scan, &blocks, count)
                                            : decode_dc(scan, &blocks, count);
            if (status != OK) return status;
            scan->left -= (int64_t)count;
        }
    }
    return OK;
}

/* Puts an AC scan into a lane, up to the chunk's end or the next restart. */
static int open_lane(Decoder *decoder, Scan *scan, Lane *lane) {
    const ScanHeader *header = scan->header;
    const Component *component = &decoder->header->components[header->components[0]];
    Slot *slot = &decoder->slots[scan->chunk % NUM_SLOTS][header->components[0]];
    if (scan->block == 0)
        scan->num_blocks = (size_t)component->columns * (size_t)block_rows_of_chunk(decoder, scan->chunk, component);
    if (restarted(scan) != OK) return UNSUPPORTED;
    size_t left = scan->num_blocks - scan->block;
    left = (uint64_t)scan->left < left ? (size_t)scan->left : left;
    uint64_t band = (~(uint64_t)0 << header->first) & ~(uint64_t)0 >> (63 - header->last);
    int16_t bit = (int16_t)(1 << header->low_bit);
    *lane = (Lane){
        .table = scan->ac_tables[0], .end_position = scan->segments[scan->segment].end,
        .end_block = scan->block + left, .coefs = slot->coefs, .masks = slot->masks,
        .band = header->high_bit ? band : (uint64_t)header->first, .behind = (uint64_t)header->last + 1,
        .corrections = slot->corrections[header->low_bit], .values = {0, bit, 0, (int16_t)-bit}, .kept = {0, ~(uint64_t)0, 0, ~(uint64_t)0},
    };
    lane->state = (State){.position = scan->position, .block = scan->block, .left = lane->band};
    if (!header->high_bit) lane->state.block += (size_t)scan->run;
    else lane->state = (decoder->has_pdep ? refined_run_pdep : refined_run_plain)(lane, lane->state, scan->run);
    return OK;
}

static int close_lane(Scan *scan, const Lane *lane) {
    if (lane->is_bad || lane->state.position > lane->end_position) return UNSUPPORTED;
    scan->position = lane->state.position;
    scan->run = scan->header->high_bit ? lane->run : (int32_t)(lane->state.block - lane->end_block);
    scan->left -= (int64_t)(lane->end_block - scan->block);
    scan->block = lane->end_block;
    return OK;
}

/* Ends a chunk of a scan. After the last chunk of the image, nothing may be left. */
static int end_chunk(Decoder *decoder, Scan *scan) {
    scan->chunk++, scan->block = 0;
    if (scan->chunk < decoder->num_chunks || decoder->num_rows < decoder->header->mcu_rows) return OK;
    return is_at_the_end(scan) && scan->segment == scan->header->num_segments - 1 ? OK : UNSUPPORTED;
}

/* The furthest behind of the scans that can go on; NULL if all must wait. */
static Scan *next_scan(Decoder *decoder) {
    Scan *found = NULL;
    int limit = decoder->num_shown + NUM_SLOTS;
    limit = limit < decoder->num_chunks ? limit : decoder->num_chunks;
    for (int i = 0; i < decoder->num_scans; i++) {
        Scan *scan = &decoder->scans[i];
        if (scan->chunk >= limit || scan == decoder->of_lane[0] || scan == decoder->of_lane[1]) continue;
        if (found && found->chunk <= scan->chunk) continue;
        int is_ready = 1;
        for (uint64_t before = scan->before; before && is_ready; before &= before - 1)
            is_ready = decoder->scans[__builtin_ctzll(before)].chunk > scan->chunk;
        if (is_ready) found = scan;
    }
    return found;
}

static void run_lanes(Decoder *decoder) {
    Lane *lanes = decoder->lanes;
    const Scan *a = decoder->of_lane[0], *b = decoder->of_lane[1];
    int refines[2] = {a && a->header->high_bit, b && b->header->high_bit};
#define RUN(suffix)                                                                        \
    if (a && b && refines[0] && refines[1]) both_refining_##suffix(lanes, lanes + 1);      \
    else if (a && b && refines[0]) first_and_refining_##suffix(lanes + 1, lanes);          \
    else if (a && b && refines[1]) first_and_refining_##suffix(lanes, lanes + 1);          \
    else if (a && b) both_first_##suffix(lanes, lanes + 1);                                \
    else if (a ? refines[0] : refines[1]) refining_##suffix(a ? lanes : lanes + 1);        \
    else first_##suffix(a ? lanes : lanes + 1);
#if defined(__x86_64__)
    if (decoder->has_pdep) {
        RUN(pdep)
        return;
    }
#endif
    RUN(plain)
}

/* Runs all scans until they have finished chunk `num_shown`; some run ahead of it. */
static int decode_chunk(Decoder *decoder) {
    for (;;) {
        for (int i = 0; i < 2; i++) {
            while (!decoder->of_lane[i]) {
                Scan *scan = next_scan(decoder);
                if (!scan) break;
                if (scan->header->first == 0) {
                    if (decode_units(decoder, scan) != OK || end_chunk(decoder, scan) != OK) return UNSUPPORTED;
                } else {
                    if (open_lane(decoder, scan, &decoder->lanes[i]) != OK) return UNSUPPORTED;
                    decoder->of_lane[i] = scan;
                }
            }
        }
        int is_through = 1;
        for (int i = 0; i < decoder->num_scans; i++) is_through &= decoder->scans[i].chunk > decoder->num_shown;
        if (is_through) return OK;
        if (!decoder->of_lane[0] && !decoder->of_lane[1]) return UNSUPPORTED;
        run_lanes(decoder);
        for (int i = 0; i < 2; i++) {
            Scan *scan = decoder->of_lane[i];
            if (!scan || is_open(&decoder->lanes[i])) continue;
            if (close_lane(scan, &decoder->lanes[i]) != OK) return UNSUPPORTED;
            decoder->of_lane[i] = NULL;
            if (scan->block == scan->num_blocks && end_chunk(decoder, scan) != OK) return UNSUPPORTED;
        }
    }
}

/* ---- Rows of pixels ---- */

enum { EDGE_BYTES = 64 }; /* before and behind each row of samples */

/* A component's samples: two MCU rows, of which the older one is still needed. */
typedef struct {
    int size, width, height; /* size of the inverse DCT; dimensions in samples */
    int first_block, end_block;
    uint8_t *samples;
    ptrdiff_t stride;
    int ring_rows, levels;
    int bits[MAX_BITS]; /* bit positions that scans refine */
    int has_ac;
} Plane;

typedef struct {
    int denominator, top, left, rows, columns, mode, mcu_px, first_row, next_line;
    Plane planes[MAX_COMPONENTS];
    uint8_t *pixels;
    ptrdiff_t stride;
} View;

/* jdmaster.c, jpeg_calc_output_dimensions: the inverse DCT upsamples chroma where it can. */
static int idct_size(const Header *header, const Component *component, int smallest) {
    int size = smallest;
    while (size < 8 && header->max_h * smallest % (component->h * size * 2) == 0 &&
           header->max_v * smallest % (component->v * size * 2) == 0)
        size *= 2;
    return size;
}

/* jdsample.c, jinit_upsampler. Modes that differ in the row above or below are distinguished later (show_lines). */
static int upsampling(const View *view, const Header *header) {
    const Plane *chroma = &view->planes[1];
    int smallest = 8 / view->denominator, is_fancy = smallest > 1;
    if (header->num_components == 1) return GREY;
    int h = header->max_h * smallest / chroma->size, v = header->max_v * smallest / chroma->size;
    if (h == 1) return v == 2 && is_fancy ? H1V2_ABOVE : FULL;
    if (!is_fancy || chroma->width <= 2) return H2_REPEATED;
    return v == 2 ? H2V2 : H2V1;
}

static int is_within(const Header *header, const View *view) {
    int d = view->denominator, height = ceiling(header->height_px, d), width = ceiling(header->width_px, d);
    return view->top >= 0 && view->left >= 0 && view->rows >= 1 && view->columns >= 1 && view->rows <= height &&
           view->columns <= width && view->top <= height - view->rows && view->left <= width - view->columns;
}

static int looks_below(const View *view) { return view->mode == H2V2 || view->mode == H1V2_ABOVE; }

/* Finds the MCU rows and blocks that a view needs. Returns the number of MCU rows up to its last. */
static int open_view(View *view, const Header *header) {
    int smallest = 8 / view->denominator;
    for (int i = 0; i < header->num_components; i++) {
        const Component *component = &header->components[i];
        Plane *plane = &view->planes[i];
        plane->size = idct_size(header, component, smallest);
        plane->width = ceiling(header->width_px * component->h * plane->size, 8 * header->max_h);
        plane->height = ceiling(header->height_px * component->v * plane->size, 8 * header->max_v);
        int columns = 8 * header->max_h, step = component->h * plane->size; /* MCU width: full-size pixels, samples */
        int first = (int)((int64_t)view->left * view->denominator * step / columns) - 2;
        int end = (int)((int64_t)(view->left + view->columns) * view->denominator * step / columns) + 3;
        plane->first_block = first < 0 ? 0 : first / plane->size;
        end = ceiling(end, plane->size);
        plane->end_block = end < component->columns ? end : component->columns;
        plane->stride = (ptrdiff_t)component->padded * plane->size + 2 * EDGE_BYTES;
        plane->ring_rows = 2 * component->v * plane->size;
    }
    view->mode = upsampling(view, header);
    view->mcu_px = header->max_v * smallest;
    int margin = looks_below(view);
    int first = view->top - margin, last = view->top + view->rows - 1 + margin;
    view->first_row = first < 0 ? 0 : first / view->mcu_px;
    last /= view->mcu_px;
    view->next_line = view->top;
    return (last < header->mcu_rows ? last : header->mcu_rows - 1) + 1;
}

static inline const uint8_t *line_of(const Plane *plane, int line) {
    line = line < 0 ? 0 : line < plane->height ? line : plane->height - 1;
    return plane->samples + EDGE_BYTES + (ptrdiff_t)(line % plane->ring_rows) * plane->stride;
}

/* Writes the lines that are complete when MCU row `row` is there. */
static void show_lines(View *view, const Header *header, int row) {
    int end = (row + 1) * view->mcu_px, v = header->num_components == 3 ? view->mcu_px / (view->planes[1].ring_rows / 2) : 1;
    if (looks_below(view) && row < header->mcu_rows - 1) end--;
    end = end < view->top + view->rows ? end : view->top + view->rows;
    for (; view->next_line < end; view->next_line++) {
        int line = view->next_line, near = line / v, far = line & 1 ? near + 1 : near - 1, mode = view->mode;
        Row lines = {.y = line_of(&view->planes[0], line)};
        if (mode != GREY) {
            lines.cb[0] = line_of(&view->planes[1], near), lines.cb[1] = line_of(&view->planes[1], far);
            lines.cr[0] = line_of(&view->planes[2], near), lines.cr[1] = line_of(&view->planes[2], far);
        }
        if (mode == H1V2_ABOVE && line & 1) mode = H1V2_BELOW;
        colour_row(&lines, mode, (size_t)view->left, (size_t)(view->left + view->columns),
                   view->pixels + (line - view->top) * view->stride);
    }
}

/* Corrects one block at its component's levels: adds the bit to positive values, subtracts it from negative ones. */
INLINED void correct_plain(int16_t *coefs, const uint64_t *corrections, const int *bits, int levels, const void *unused) {
    (void)unused;
    for (int i = 0; i < levels; i++) {
        int16_t bit = (int16_t)(1 << bits[i]);
        for (uint64_t found = corrections[i]; found; found &= found - 1) {
            int16_t *at = coefs + NATURAL[__builtin_ctzll(found)];
            *at = (int16_t)(*at < 0 ? *at - bit : *at + bit);
        }
    }
}

#if defined(__x86_64__)
/* Zigzag position of every place in a block. `Places` has its byte in a mask, and the bit in that byte. */
static const uint8_t ZIGZAG[64] = {
    0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30,
    41, 43, 9,  11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38,
    46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63,
};
typedef struct {
    _Alignas(64) int16_t byte[64], bit[64];
} Places;
static const Places *places_of_bits(void) {
    static Places places;
    static int is_known;
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) { /* threads that race write the same values */
        for (int i = 0; i < 64; i++) {
            __atomic_store_n(&places.byte[i], (int16_t)(0x8000 | ZIGZAG[i] >> 3), __ATOMIC_RELAXED);
            __atomic_store_n(&places.bit[i], (int16_t)(1 << (ZIGZAG[i] & 7)), __ATOMIC_RELAXED);
        }
        __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
    }
    return &places;
}

#define WITH_AVX2 __attribute__((target("avx2")))
#define WITH_SSE41 __attribute__((target("sse4.1")))
WITH_AVX2 INLINED void correct_avx2(int16_t *coefs, const uint64_t *corrections, const int *bits, int levels,
                                    const Places *places) {
    __m256i more[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int i = 0; i < levels; i++) {
        __m256i mask = _mm256_set1_epi64x((int64_t)corrections[i]), value = _mm256_set1_epi16((int16_t)(1 << bits[i]));
        for (int j = 0; j < 4; j++) {
            __m256i bit = _mm256_load_si256((const __m256i *)(places->bit + 16 * j));
            __m256i byte = _mm256_shuffle_epi8(mask, _mm256_load_si256((const __m256i *)(places->byte + 16 * j)));
            more[j] = _mm256_or_si256(more[j], _mm256_and_si256(_mm256_cmpeq_epi16(_mm256_and_si256(byte, bit), bit), value));
        }
    }
    for (int j = 0; j < 4; j++) {
        __m256i *at = (__m256i *)(coefs + 16 * j), of = _mm256_load_si256(at);
        _mm256_store_si256(at, _mm256_add_epi16(of, _mm256_sign_epi16(more[j], of)));
    }
}

WITH_SSE41 INLINED void correct_sse41(int16_t *coefs, const uint64_t *corrections, const int *bits, int levels,
                                      const Places *places) {
    for (int j = 0; j < 8; j++) {
        __m128i bit = _mm_load_si128((const __m128i *)(places->bit + 8 * j)), more = _mm_setzero_si128();
        for (int i = 0; i < levels; i++) {
            __m128i mask = _mm_set1_epi64x((int64_t)corrections[i]), value = _mm_set1_epi16((int16_t)(1 << bits[i]));
            __m128i byte = _mm_shuffle_epi8(mask, _mm_load_si128((const __m128i *)(places->byte + 8 * j)));
            more = _mm_or_si128(more, _mm_and_si128(_mm_cmpeq_epi16(_mm_and_si128(byte, bit), bit), value));
        }
        __m128i *at = (__m128i *)(coefs + 8 * j), of = _mm_load_si128(at);
        _mm_store_si128(at, _mm_add_epi16(of, _mm_sign_epi16(more, of)));
    }
}
#endif

/* Completes blocks with their DC and corrections. */
#define COMPLETE_BLOCKS(name, target, correct, places)                                                         \
    target static void name(const Plane *plane, const Slot *slot, size_t block, size_t dc, size_t count) {     \
        int16_t *coefs = slot->coefs + block * 64;                                                             \
        uint64_t found[MAX_BITS];                                                                              \
        for (size_t i = 0; i < count; i++, coefs += 64) {                                                      \
            coefs[0] = slot->dc[dc + i];                                                                       \
            uint64_t any = 0;                                                                                  \
            for (int j = 0; j < plane->levels; j++) any |= found[j] = slot->corrections[plane->bits[j]][block + i]; \
            if (any) correct(coefs, found, plane->bits, plane->levels, places);                                \
        }                                                                                                      \
    }
COMPLETE_BLOCKS(complete_blocks_plain, , correct_plain, NULL)
IF_X86(COMPLETE_BLOCKS(complete_blocks_avx2, WITH_AVX2, correct_avx2, places_of_bits()))
IF_X86(COMPLETE_BLOCKS(complete_blocks_sse41, WITH_SSE41, correct_sse41, places_of_bits()))
IF_ARM(COMPLETE_BLOCKS(complete_blocks_neon, , correct_plain, NULL))

static void complete_blocks(const Plane *plane, const Slot *slot, size_t block, size_t dc, size_t count) {
    BY_PATH(complete_blocks, plane, slot, block, dc, count);
}

/* Turns one MCU row of a chunk, number `row` of the image, into samples and pixels. */
static void show_row(Decoder *decoder, View *view, int row, int row_of_chunk) {
    const Header *header = decoder->header;
    const Slot *slots = decoder->slots[row / decoder->rows_per_chunk % NUM_SLOTS];
    for (int i = 0; i < header->num_components; i++) {
        const Component *component = &header->components[i];
        Plane *plane = &view->planes[i];
        size_t first = (size_t)plane->first_block, count = (size_t)(plane->end_block - plane->first_block);
        for (int y = 0; y < component->v && row * component->v + y < component->rows; y++) {
            size_t block_row = (size_t)(row_of_chunk * component->v + y), block = block_row * (size_t)component->stride + first;
            complete_blocks(plane, &slots[i], block, block_row * (size_t)component->padded + first, count);
            int line = (row * component->v + y) * plane->size % plane->ring_rows;
            uint8_t *out = plane->samples + EDGE_BYTES + line * plane->stride;
            idct_row(slots[i].coefs + block * 64, slots[i].masks + block, count, &decoder->quantisers[i], plane->size,
                     out + first * (size_t)plane->size, plane->stride);
            for (int j = 0; j < plane->size; j++) repeat_edges(out + j * plane->stride, (size_t)plane->width);
        }
    }
    show_lines(view, header, row);
}

/* ---- Memory ---- */

/* Memory that is handed out in order. Without memory, bytes are only counted. */
typedef struct {
    uint8_t *memory;
    size_t used;
} Arena;

static void *take(Arena *arena, size_t bytes) {
    void *found = arena->memory ? arena->memory + arena->used : NULL;
    arena->used += (bytes + 63) & ~(size_t)63;
    return found;
}

static void lay_out(Decoder *decoder, View *view, Arena *arena, size_t *num_zeros) {
    const Header *header = decoder->header;
    for (int slot = 0; slot < NUM_SLOTS; slot++) {
        for (int i = 0; i < header->num_components; i++) {
            const Component *component = &header->components[i];
            Slot *of = &decoder->slots[slot][i];
            size_t rows = (size_t)(decoder->rows_per_chunk * component->v);
            size_t blocks = rows * (size_t)component->stride + 1;
            of->coefs = take(arena, blocks * 64 * sizeof *of->coefs);
            of->masks = take(arena, blocks * sizeof *of->masks);
            of->dc = take(arena, rows * (size_t)component->padded * sizeof *of->dc);
            for (int j = 0; j < view->planes[i].levels; j++)
                of->corrections[view->planes[i].bits[j]] = take(arena, blocks * sizeof **of->corrections);
        }
    }
    for (int i = 0; i < header->num_components; i++)
        view->planes[i].samples = take(arena, (size_t)view->planes[i].stride * (size_t)view->planes[i].ring_rows);
    *num_zeros = arena->used;
    take(arena, PADDING_BYTES);
    for (int i = 0; i < decoder->num_scans; i++) {
        Scan *scan = &decoder->scans[i];
        const ScanHeader *of = scan->header;
        for (int j = 0; j < of->num_components; j++) {
            if (of->dc_tables[j]) scan->dc_tables[j] = take(arena, sizeof(Table));
            if (of->ac_tables[j]) scan->ac_tables[j] = take(arena, sizeof(Table));
        }
        scan->segments = take(arena, sizeof(Segment) * (size_t)of->num_segments);
        scan->stream = take(arena, (size_t)(of->data_end - of->data) + PADDING_BYTES * (size_t)of->num_segments +
                                       LONGEST_BLOCK_BYTES);
    }
}

static void read_quantiser(Quantiser *quantiser, const uint8_t *at) {
    for (int k = 0; k < 64; k++)
        quantiser->q[NATURAL[k]] = (uint16_t)(*at >> 4 ? be16(at + 1 + 2 * k) : at[1 + k]);
}

static void open_scan(const Header *header, Scan *scan) {
    const ScanHeader *of = scan->header;
    Symbols ac = !header->is_progressive ? SEQUENTIAL_AC : of->high_bit ? REFINED_AC : FIRST_AC;
    for (int i = 0; i < of->num_components; i++) {
        if (of->dc_tables[i]) build_table(scan->dc_tables[i], of->dc_tables[i], DC_SYMBOLS, 0);
        if (of->ac_tables[i]) build_table(scan->ac_tables[i], of->ac_tables[i], ac, of->low_bit);
    }
    unstuff(of, scan->stream, scan->segments);
    scan->position = scan->segments[0].first;
    scan->left = of->restart_interval ? of->restart_interval : INT64_MAX;
}

/* Chooses the scans that matter: at size 1, only DC is needed. */
static void choose_scans(Decoder *decoder, View *view) {
    const Header *header = decoder->header;
    for (int i = 0; i < header->num_scans; i++) {
        const ScanHeader *of = &header->scans[i];
        Plane *plane = &view->planes[of->components[0]];
        if (of->first > 0 && plane->size == 1) continue;
        Scan *scan = &decoder->scans[decoder->num_scans];
        *scan = (Scan){.header = of};
        for (int j = 0; j < decoder->num_scans; j++) {
            const ScanHeader *other = decoder->scans[j].header;
            int shares = of->first <= other->last && other->first <= of->last;
            for (int a = 0; a < of->num_components * other->num_components; a++) {
                int mine = of->components[a / other->num_components];
                if (shares && mine == other->components[a % other->num_components]) scan->before |= (uint64_t)1 << j;
            }
        }
        for (int j = 0; j < of->num_components; j++) view->planes[of->components[j]].has_ac |= of->last > 0;
        if (of->first > 0 && of->high_bit) {
            int is_new = 1;
            for (int j = 0; j < plane->levels; j++) is_new &= plane->bits[j] != of->low_bit;
            if (is_new) plane->bits[plane->levels++] = of->low_bit;
        }
        decoder->num_scans++;
    }
}

/* Clears a chunk that was shown, so that its memory can be reused. */
static void clear_slot(Decoder *decoder, const View *view, Slot *slots) {
    for (int i = 0; i < decoder->header->num_components; i++) {
        const Component *component = &decoder->header->components[i];
        const Plane *plane = &view->planes[i];
        size_t blocks = (size_t)(decoder->rows_per_chunk * component->v) * (size_t)component->stride;
        if (plane->has_ac) memset(slots[i].coefs, 0, blocks * 64 * sizeof *slots->coefs);
        if (plane->has_ac) memset(slots[i].masks, 0, blocks * sizeof *slots->masks);
        for (int j = 0; j < plane->levels; j++)
            memset(slots[i].corrections[plane->bits[j]], 0, blocks * sizeof **slots->corrections);
    }
}

/* Whether to use pdep: if forced, or if the CPU's is fast. AMD's is slow before Zen 3 (family 19h). */
static int find_pdep(void) {
    const char *wanted = getenv("PCR_EXP_BITS");
#if defined(__x86_64__)
    if (wanted && !strcmp(wanted, "plain")) return 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("popcnt")) return 0;
    if (wanted && !strcmp(wanted, "pdep")) return 1;
    return !(__builtin_cpu_is("bdver4") || __builtin_cpu_is("znver1") || __builtin_cpu_is("znver2"));
#else
    (void)wanted;
    return 0;
#endif
}

static int has_fast_pdep(void) {
    static int known = -1; /* threads that race write the same value */
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (found < 0) __atomic_store_n(&known, found = find_pdep(), __ATOMIC_RELAXED);
    return found;
}

/* Callback for every finished chunk. */
typedef void (*Shown)(Decoder *, View *, int chunk, void *);

static int decode_all(const Header *header, View *view, Shown shown, void *context) {
    Decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) return NO_MEMORY;
    decoder->header = header, decoder->has_pdep = has_fast_pdep();
    int status = OK;
    size_t blocks = 0, num_zeros = 0;
    for (int i = 0; i < header->num_components; i++) {
        const Component *component = &header->components[i];
        blocks += (size_t)(component->padded * component->v);
        if (component->has_scan) read_quantiser(&decoder->quantisers[i], header->quantisers[component->quantiser_table]);
    }
    decoder->num_rows = open_view(view, header);
    decoder->rows_per_chunk = blocks < CHUNK_BLOCKS ? (int)(CHUNK_BLOCKS / blocks) : 1;
    if (decoder->rows_per_chunk > decoder->num_rows) decoder->rows_per_chunk = decoder->num_rows;
    decoder->num_chunks = ceiling(decoder->num_rows, decoder->rows_per_chunk);
    choose_scans(decoder, view);
    Arena arena = {NULL, 0};
    lay_out(decoder, view, &arena, &num_zeros);
    uint8_t *memory = malloc(arena.used + 64);
    if (!memory) status = NO_MEMORY;
    if (status == OK) {
        arena = (Arena){memory + (-(uintptr_t)memory & 63), 0};
        lay_out(decoder, view, &arena, &num_zeros);
        memset(arena.memory, 0, num_zeros);
        for (int i = 0; i < decoder->num_scans; i++) open_scan(header, &decoder->scans[i]);
    }
    for (; status == OK && decoder->num_shown < decoder->num_chunks; decoder->num_shown++) {
        status = decode_chunk(decoder);
        if (status == OK) shown(decoder, view, decoder->num_shown, context);
        if (decoder->num_shown + NUM_SLOTS < decoder->num_chunks)
            clear_slot(decoder, view, decoder->slots[decoder->num_shown % NUM_SLOTS]);
    }
    free(memory);
    free(decoder);
    return status;
}

static void show_chunk(Decoder *decoder, View *view, int chunk, void *context) {
    (void)context;
    for (int i = 0, rows = rows_of_chunk(decoder, chunk); i < rows; i++) {
        int row = chunk * decoder->rows_per_chunk + i;
        if (row >= view->first_row) show_row(decoder, view, row, i);
    }
}

/* Copies all blocks, [rows][columns][64] of each component, for tests and statistics. */
static void copy_chunk(Decoder *decoder, View *view, int chunk, void *context) {
    int16_t **out = context;
    for (int i = 0; i < decoder->header->num_components; i++) {
        const Component *component = &decoder->header->components[i];
        const Slot *slot = &decoder->slots[chunk % NUM_SLOTS][i];
        int rows = block_rows_of_chunk(decoder, chunk, component);
        for (int row = 0; row < rows; row++) {
            size_t block = (size_t)row * (size_t)component->stride, count = (size_t)component->columns;
            complete_blocks(&view->planes[i], slot, block, (size_t)row * (size_t)component->padded, count);
            memcpy(out[i], slot->coefs + block * 64, count * 64 * sizeof **out);
            out[i] += count * 64;
        }
    }
}

/* ---- Exported functions ---- */

/* Version of the exported functions, which decoder.py compares with its own. */
EXPORTED int pcr_decoder_version(void) { return 2; }

/* The code paths in use on this machine, for pixels and for bits. */
EXPORTED const char *pcr_decoder_paths(void) {
    static const char *const names[2][5] = {
        {"", "plain, plain", "sse41, plain", "avx2, plain", "neon, plain"},
        {"", "plain, pdep", "sse41, pdep", "avx2, pdep", "neon, pdep"},
    };
    return names[has_fast_pdep()][simd_path()];
}

/* out: height, width, and the width of an MCU in pixels; whether any quantisers have 16 bits; the number of components;
 * then, for each, its quantisation table, block rows and blocks per row. */
EXPORTED int pcr_decoder_frame(const Piece *pieces, size_t num_pieces, int32_t *out) {
    Header header;
    if (read_header(&header, pieces, num_pieces, 1) != OK) return UNSUPPORTED;
    out[0] = header.height_px, out[1] = header.width_px, out[2] = 8 * header.max_h;
    out[3] = 0, out[4] = header.num_components;
    for (int i = 0; i < header.num_components; i++) {
        const Component *component = &header.components[i];
        const uint8_t *quantiser = header.quantisers[component->quantiser_table];
        if (!quantiser) return UNSUPPORTED;
        out[3] |= *quantiser >> 4;
        out[5 + 3 * i] = component->quantiser_table, out[6 + 3 * i] = component->rows;
        out[7 + 3 * i] = component->columns;
    }
    return OK;
}

/* Decodes a rectangle of the image at 1/denominator of its size (rounded up) to RGB [rows, columns, 3], `stride` bytes
 * from row to row. If `bits` [components][64] is given, `Component.bits` after all scans must equal it. */
EXPORTED int pcr_decoder_decode(const Piece *pieces, size_t num_pieces, int denominator, int top, int left, int rows,
                                int columns, uint8_t *pixels, ptrdiff_t stride, const int8_t *bits) {
    Header header;
    View view = {.denominator = denominator, .top = top, .left = left, .rows = rows, .columns = columns,
                 .pixels = pixels, .stride = stride};
    if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) return UNSUPPORTED;
    if (read_header(&header, pieces, num_pieces, 0) != OK || !is_within(&header, &view)) return UNSUPPORTED;
    for (int i = 0; bits && i < header.num_components; i++)
        if (memcmp(bits + 64 * i, header.components[i].bits, 64)) return UNSUPPORTED;
    return decode_all(&header, &view, show_chunk, NULL);
}

/* Writes int16 [rows, columns, 64] for each component, in natural order: the blocks that `pcr_decoder_frame` counts. */
EXPORTED int pcr_decoder_coefficients(const Piece *pieces, size_t num_pieces, int16_t *const *out) {
    Header header;
    if (read_header(&header, pieces, num_pieces, 0) != OK) return UNSUPPORTED;
    View view = {.denominator = 1, .rows = header.height_px, .columns = header.width_px};
    int16_t *places[MAX_COMPONENTS];
    for (int i = 0; i < header.num_components; i++) places[i] = out[i];
    return decode_all(&header, &view, copy_chunk, places);
}

#else
/* ==== From blocks to pixels, in vectors ====
 *
 * VECTOR: 8 or 16 lanes of 16 bits, for 1 or 2 blocks. HALF: the same number of bits in lanes of 32. */

#define INLINE static inline __attribute__((always_inline)) TARGET

typedef struct {
    HALF lo, hi; /* the lower and the upper 4 of every 8 lanes */
} P(Wide);
#define Wide P(Wide)

#ifdef MM /* x86 */
#if LANES == 2
INLINE VECTOR P(load)(const void *at) { return _mm256_loadu_si256(at); }
INLINE VECTOR P(load_rows)(const int16_t *a, const int16_t *b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                   _mm_loadu_si128((const __m128i *)b), 1);
}
INLINE VECTOR P(repeated)(const void *at) { return _mm256_castps_si256(_mm256_broadcast_ps(at)); } /* any 128 bits */
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
/* 16 pixels per 128 bits, from the even and the odd columns of each channel. */
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
/* 16 pixels, from the even and the odd columns of each channel. */
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

/* Like `islow` above, before the shift by `bits`. is_short: in[4] to in[7] are 0, and constants are combined. */
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

/* `rounds` perfect shuffles of 8 * count lanes (of every block). Each rotates the bits of a lane's index by one, so
 * that three of them transpose 8 x 8. */
INLINE void P(shuffle)(VECTOR *v, int count, int rounds) {
    for (VECTOR next[8]; rounds > 0; rounds--) {
        for (int i = 0; i < count / 2; i++) {
            next[2 * i] = P(zip_lo)(v[i], v[i + count / 2]);
            next[2 * i + 1] = P(zip_hi)(v[i], v[i + count / 2]);
        }
        for (int i = 0; i < count; i++) v[i] = next[i];
    }
}

/* Dequantises rows of LANES blocks. Returns 0 if the first pass may wrap, which is left to plain C. */
INLINE int P(dequantised)(const int16_t *a, const int16_t *b, const Quantiser *quantiser, int num_rows, VECTOR *rows) {
    for (int i = 0; i < num_rows; i++)
        rows[i] = P(times)(P(load_rows)(a + 8 * i, b + 8 * i), P(repeated)(quantiser->q + 8 * i));
    return !P(is_any)(P(plus)(rows[0], P(all)(0x2000)), P(all)(0xC000));
}

/* LANES blocks at size 8. is_narrow: columns 4 to 7 are 0, so the first pass has half the lanes, and the second half
 * the terms. is_low: rows 4 to 7 are 0. */
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

/* The end of `reduced_to_4`, from its four sums of products. */
INLINE void P(reduced_to_4)(HALF mean, HALF slow, HALF inner, HALF outer, int bits, HALF out[4]) {
    mean = P(add_all)(mean, 1 << (bits - 1));
    HALF far = P(add)(mean, slow), near = P(sub)(mean, slow);
    out[0] = P(add)(far, outer), out[1] = P(add)(near, inner);
    out[2] = P(sub)(near, inner), out[3] = P(sub)(far, outer);
}

/* LANES blocks at size 4. is_low: only their 4 x 4 lowest frequencies are nonzero. */
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
    P(shuffle)(v, is_low ? 2 : 4, 2); /* two columns of 4 rows in each */
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

/* Sorts blocks by the amount of work, and processes those of a kind together. */
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
        if (num[kind]) alike[kind][num[kind]] = alike[kind][num[kind] - 1]; /* pairs with the last of an odd number */
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

/* Like idct_row_plain, at sizes 8 and 4. */
TARGET static void P(idct_row)(const int16_t *coefs, const uint64_t *masks, size_t count, const Quantiser *quantiser,
                               int size, uint8_t *out, ptrdiff_t stride) {
    for (size_t i = 0; i < count; i += MOST_BLOCKS) {
        size_t next = count - i < MOST_BLOCKS ? count - i : MOST_BLOCKS;
        if (size == 8) P(idct_blocks)(coefs + 64 * i, masks + i, next, quantiser, 8, out + 8 * i, stride);
        else P(idct_blocks)(coefs + 64 * i, masks + i, next, quantiser, 4, out + 4 * i, stride);
    }
}

/* Like chroma_at minus 128, for 8 * LANES pairs of columns from an even one on. */
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
    } else { /* the samples before, here and behind */
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

/* jdcolor.c: its tables have x + (x * 13173 rounded) and 2 x - (x * 7471 rounded) for all x in -128..127. */
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
