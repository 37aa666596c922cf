/* The first one or two scans of a progressive JPEG at a fraction of its size, as libjpeg-turbo shows them.
 *
 * One scan, with the DC coefficients of all components, at 1/8: one number per 8 x 8 block, its mean. A second,
 * with the lowest of luma's AC coefficients, at 1/2. libjpeg decodes such files through arrays of all 64
 * coefficients of every block; here a block keeps those that can have come, and only blocks within the rectangle
 * that is wanted become pixels. The pixels are the same to the bit, because little is left to choose: the inverse
 * DCT is jidctred.c's, chroma is repeated (no scale here is one at which jdsample.c interpolates), and colours
 * are converted by the fixed-point numbers of jdcolor.c.
 *
 * Whatever is not exactly that, or not in order, is left to libjpeg, which decodes it or says what is wrong:
 * UNSUPPORTED never means that a file is bad. No byte outside the buffers is touched, whatever they hold.
 *
 * Plain C99, no Python: called through ctypes, which releases the GIL meanwhile. Markers follow ITU-T T.81.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

enum { OK = 0, UNSUPPORTED = 1, NO_MEMORY = 2 };
enum { SOF2 = 0xC2, DHT = 0xC4, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, APP0 = 0xE0 };
enum { MAX_COMPONENTS = 3, NUM_TABLES = 4, LARGEST_SIDE_PX = 65500 };
enum { LONGEST_CODE = 16, LOOKUP_BITS = 9, LARGEST_CATEGORY = 11, HIGHEST_LOW_BIT = 3, LARGEST_QUANTISER = 0x7FFF };
/* Coefficients of luma that are kept: those of zigzag order up to 5, of the three lowest frequencies. */
enum { NUM_KEPT = 6 };
/* Times their quantisers, all coefficients of 8-bit images are within it, and sums of six fit 16 bits of SIMD code. */
enum { LARGEST_COEFFICIENT = 2048 };
/* Bits are loaded 8 bytes at once, and the end is looked for once per MCU: 6 blocks of 16 + 11 bits each. */
enum { PADDING_BYTES = 64 };

typedef struct {
    uint16_t short_code[1 << LOOKUP_BITS]; /* bits of the code << 8 | symbol; 0 where it is longer */
    int32_t end[LONGEST_CODE + 1];         /* first code behind those of this length, left-aligned in 16 bits */
    int32_t shift[LONGEST_CODE + 1];       /* what makes an index of `symbols` of a code of this length */
    uint8_t symbols[256];
    int num_symbols;
} Huffman;

typedef struct {
    int id, h, v, quantiser_table, huffman_table;
    int32_t quantiser;
    int columns, rows; /* of blocks, those that fill up the last MCUs included */
} Component;

typedef struct {
    int low_bit;
    size_t first, last; /* its entropy-coded bytes */
} Scan;

typedef struct {
    int height_px, width_px, num_components, max_h, max_v, mcus_per_row, mcu_rows;
    Component components[MAX_COMPONENTS];
    int32_t quantisers[NUM_TABLES][NUM_KEPT]; /* 0: not defined */
    Huffman dc_tables[NUM_TABLES], ac_tables[NUM_TABLES];
    int num_scans, ac_table, last_ac;
    Scan scans[2];
} Image;

static int be16(const uint8_t *at) { return at[0] << 8 | at[1]; }

/* T.81 B.2.4.1; only the first of 64 entries are looked at. */
static int read_quantisers(Image *image, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        int is_wide = *at >> 4, number = *at & 15;
        if (is_wide > 1 || number >= NUM_TABLES || end - at < 1 + 64 * (1 + is_wide)) return UNSUPPORTED;
        for (int i = 0; i < NUM_KEPT; i++) image->quantisers[number][i] = is_wide ? be16(at + 1 + 2 * i) : at[1 + i];
        at += 1 + 64 * (1 + is_wide);
    }
    return OK;
}

/* T.81 B.2.4.2 and C.2. */
static int read_huffman(Image *image, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        int is_ac = *at >> 4, number = *at & 15;
        if (end - at < 17 || is_ac > 1 || number >= NUM_TABLES) return UNSUPPORTED;
        if (!is_ac && image->num_scans) return UNSUPPORTED; /* the first scan's would be gone */
        Huffman *table = is_ac ? &image->ac_tables[number] : &image->dc_tables[number];
        const uint8_t *counts = at, *symbols = at + 17; /* counts[1..16] */
        int code = 0, k = 0;
        memset(table, 0, sizeof *table);
        for (int length = 1; length <= LONGEST_CODE; length++) table->num_symbols += counts[length];
        if (table->num_symbols < 1 || table->num_symbols > 256) return UNSUPPORTED;
        if (end - symbols < table->num_symbols) return UNSUPPORTED;
        for (int length = 1; length <= LONGEST_CODE; length++, code <<= 1) {
            table->shift[length] = k - code;
            for (int i = 0; i < counts[length]; i++, k++, code++) {
                if ((!is_ac && symbols[k] > LARGEST_CATEGORY) || code >= 1 << length) return UNSUPPORTED;
                table->symbols[k] = symbols[k];
                if (length > LOOKUP_BITS) continue;
                uint16_t *entry = table->short_code + (code << (LOOKUP_BITS - length));
                for (int j = 0; j < 1 << (LOOKUP_BITS - length); j++) entry[j] = (uint16_t)(length << 8 | symbols[k]);
            }
            if (code >= 1 << length) return UNSUPPORTED; /* only ones are no code (T.81 C.2) */
            table->end[length] = code << (LONGEST_CODE - length);
        }
        at = symbols + table->num_symbols;
    }
    return OK;
}

/* T.81 B.2.2, for the subsamplings that are met: 4:4:4, 4:2:2, 4:4:0, 4:2:0 and grey. */
static int read_frame(Image *image, const uint8_t *at, const uint8_t *end) {
    if (image->num_components || end - at < 6 || at[0] != 8) return UNSUPPORTED;
    image->height_px = be16(at + 1), image->width_px = be16(at + 3);
    int count = at[5];
    if ((count != 1 && count != 3) || end - at != 6 + 3 * count) return UNSUPPORTED;
    if (image->height_px < 1 || image->width_px < 1) return UNSUPPORTED;
    if (image->height_px > LARGEST_SIDE_PX || image->width_px > LARGEST_SIDE_PX) return UNSUPPORTED;
    image->num_components = count;
    for (int i = 0; i < count; i++) {
        Component *component = &image->components[i];
        const uint8_t *fields = at + 6 + 3 * i;
        component->id = fields[0], component->h = fields[1] >> 4, component->v = fields[1] & 15;
        component->quantiser_table = fields[2];
        if (component->id != i + 1 || fields[2] >= NUM_TABLES) return UNSUPPORTED; /* other names: other colours */
        int largest = count == 3 && i == 0 ? 2 : 1;
        if (component->h < 1 || component->h > largest || component->v < 1 || component->v > largest)
            return UNSUPPORTED;
    }
    image->max_h = image->components[0].h, image->max_v = image->components[0].v;
    image->mcus_per_row = (image->width_px + 8 * image->max_h - 1) / (8 * image->max_h);
    image->mcu_rows = (image->height_px + 8 * image->max_v - 1) / (8 * image->max_v);
    for (int i = 0; i < count; i++) {
        image->components[i].columns = image->mcus_per_row * image->components[i].h;
        image->components[i].rows = image->mcu_rows * image->components[i].v;
    }
    return OK;
}

/* T.81 B.2.3: all components at once, in order, DC alone, for the first time. */
static int read_dc_scan(Image *image, const uint8_t *at, const uint8_t *end) {
    int count = image->num_components;
    if (!count || end - at != 4 + 2 * count || at[0] != count) return UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        Component *component = &image->components[i];
        component->huffman_table = at[2 + 2 * i] >> 4;
        if (at[1 + 2 * i] != component->id || at[2 + 2 * i] & 15) return UNSUPPORTED;
        if (component->huffman_table >= NUM_TABLES) return UNSUPPORTED;
        if (!image->dc_tables[component->huffman_table].num_symbols) return UNSUPPORTED;
        component->quantiser = image->quantisers[component->quantiser_table][0];
        if (component->quantiser < 1 || component->quantiser > LARGEST_QUANTISER) return UNSUPPORTED;
    }
    const uint8_t *spectrum = at + 1 + 2 * count; /* Ss, Se, Ah << 4 | Al */
    image->scans[0].low_bit = spectrum[2];
    return spectrum[0] == 0 && spectrum[1] == 0 && spectrum[2] <= HIGHEST_LOW_BIT ? OK : UNSUPPORTED;
}

/* T.81 B.2.3: luma's first AC coefficients, for the first time. */
static int read_ac_scan(Image *image, const uint8_t *at, const uint8_t *end) {
    if (end - at != 6 || at[0] != 1 || at[1] != image->components[0].id || at[2] >> 4) return UNSUPPORTED;
    image->ac_table = at[2], image->last_ac = at[4], image->scans[1].low_bit = at[5];
    if (image->ac_table >= NUM_TABLES || !image->ac_tables[image->ac_table].num_symbols) return UNSUPPORTED;
    return at[3] == 1 && at[4] >= 1 && at[4] < NUM_KEPT && at[5] <= HIGHEST_LOW_BIT ? OK : UNSUPPORTED;
}

/* The marker behind entropy-coded bytes from `at` on, or 0 if there is none. */
static size_t next_marker(const uint8_t *jpeg, size_t size, size_t at) {
    while (at < size) {
        const uint8_t *found = memchr(jpeg + at, 0xFF, size - at);
        if (!found || found + 1 >= jpeg + size) return 0;
        at = (size_t)(found - jpeg);
        if (jpeg[at + 1] != 0) return at;
        at += 2;
    }
    return 0;
}

/* Headers, and where the scans' bytes lie: nothing may stand between them and the end-of-image marker. */
static int read_header(Image *image, const uint8_t *jpeg, size_t size) {
    memset(image, 0, sizeof *image);
    if (size < 4 || jpeg[0] != 0xFF || jpeg[1] != SOI) return UNSUPPORTED;
    size_t at = 2;
    while (size - at >= 4 && jpeg[at] == 0xFF) {
        int code = jpeg[at + 1], length = be16(jpeg + at + 2), status = OK;
        if (length < 2 || size - at - 2 < (size_t)length) return UNSUPPORTED;
        const uint8_t *payload = jpeg + at + 4, *end = jpeg + at + 2 + length;
        int is_before = image->num_scans == 0;
        if (code == DHT) status = read_huffman(image, payload, end);
        else if (code == SOS && is_before) status = read_dc_scan(image, payload, end);
        else if (code == SOS && image->num_scans == 1) status = read_ac_scan(image, payload, end);
        else if (code == DQT && is_before) status = read_quantisers(image, payload, end);
        else if (code == SOF2 && is_before) status = read_frame(image, payload, end);
        else if (code != APP0 || !is_before || length < 16 || memcmp(payload, "JFIF\0\1", 6)) status = UNSUPPORTED;
        if (status != OK) return status;
        at += 2 + (size_t)length;
        if (code != SOS) continue;
        size_t last = next_marker(jpeg, size, at);
        if (!last) return UNSUPPORTED;
        image->scans[image->num_scans].first = at, image->scans[image->num_scans].last = at = last;
        image->num_scans++;
        if (jpeg[at + 1] != EOI) continue;
        /* At 1/2 such chroma would be interpolated. */
        return image->num_scans == 2 && image->max_h != image->max_v ? UNSUPPORTED : OK;
    }
    return UNSUPPORTED;
}

/* A scan's bytes without the zero after each FF (T.81 B.1.1.5), and zeros behind them; returns how many. */
static size_t unstuffed(const uint8_t *from, const uint8_t *end, uint8_t *out) {
    uint8_t *to = out;
    while (from < end) {
        const uint8_t *marker = memchr(from, 0xFF, (size_t)(end - from));
        size_t count = marker ? (size_t)(marker - from) + 1 : (size_t)(end - from);
        memcpy(to, from, count);
        to += count, from += count + (marker != NULL);
    }
    memset(to, 0, PADDING_BYTES);
    return (size_t)(to - out);
}

/* The next bits, left-aligned in `word`: at least 56 of them after `refill`. */
typedef struct {
    const uint8_t *next, *end;
    uint64_t word;
    int num_bits;
} Bits;

static inline void refill(Bits *bits) {
    uint64_t eight = 0;
    for (int i = 0; i < 8; i++) eight = eight << 8 | bits->next[i]; /* compilers make it one load */
    bits->word |= eight >> bits->num_bits;
    bits->next += (63 - bits->num_bits) >> 3;
    bits->num_bits |= 56;
}

static inline void drop(Bits *bits, int count) { bits->word <<= count, bits->num_bits -= count; }

/* Whether more than there is was read; to be asked before 7 times 8 bytes more are. */
static inline int is_cut_short(const Bits *bits) { return bits->next > bits->end + 8; }

/* libjpeg warns of both: of bits that are missing, and of bytes that are left. */
static int is_at_the_end(const Bits *bits) {
    int64_t num_left = 8 * (int64_t)(bits->end - bits->next) + bits->num_bits;
    return num_left >= 0 && num_left < 8;
}

/* The symbol of the next code; negative if there is no such code. */
static inline int next_symbol(Bits *bits, const Huffman *table) {
    int code = table->short_code[bits->word >> (64 - LOOKUP_BITS)];
    if (code) {
        drop(bits, code >> 8);
        return code & 255;
    }
    int32_t aligned = (int32_t)(bits->word >> 48);
    int length = LOOKUP_BITS + 1;
    while (length <= LONGEST_CODE && aligned >= table->end[length]) length++;
    if (length > LONGEST_CODE) return -1;
    int index = (aligned >> (LONGEST_CODE - length)) + table->shift[length];
    if (index < 0 || index >= table->num_symbols) return -1;
    drop(bits, length);
    return table->symbols[index];
}

/* So many bits as a number. */
static inline int32_t next_bits(Bits *bits, int count) {
    int32_t value = (int32_t)(bits->word >> 32 >> (32 - count));
    drop(bits, count);
    return value;
}

/* EXTEND of T.81 F.2.2.1: below half of a category's range, values are negative. No branch: it is a coin's toss. */
static inline int32_t next_value(Bits *bits, int category) {
    int32_t offset = (int32_t)(~bits->word >> 63) * ((1 << category) - 1);
    return next_bits(bits, category) - offset;
}

static inline int is_too_large(int32_t value) { return value < -LARGEST_COEFFICIENT || value > LARGEST_COEFFICIENT; }

/* The first scan: planes[i] is [rows, columns] of components[i], of `kept[i]` numbers each; fills the first. */
static int decode_dc(const Image *image, Bits bits, int16_t *const *planes, const int *kept) {
    int32_t predicted[MAX_COMPONENTS] = {0}, scale = 1 << image->scans[0].low_bit;
    for (int row = 0; row < image->mcu_rows; row++) {
        for (int column = 0; column < image->mcus_per_row; column++) {
            for (int i = 0; i < image->num_components; i++) {
                const Component *component = &image->components[i];
                const Huffman *table = &image->dc_tables[component->huffman_table];
                size_t block = (size_t)row * component->v * component->columns + (size_t)column * component->h;
                for (int y = 0; y < component->v; y++, block += component->columns) {
                    for (int x = 0; x < component->h; x++) {
                        refill(&bits);
                        int category = next_symbol(&bits, table);
                        if (category < 0) return UNSUPPORTED;
                        predicted[i] += next_value(&bits, category);
                        int32_t value = predicted[i] * scale * component->quantiser;
                        if (is_too_large(value)) return UNSUPPORTED;
                        planes[i][(block + x) * kept[i]] = (int16_t)value;
                    }
                }
            }
            if (is_cut_short(&bits)) return UNSUPPORTED;
        }
    }
    return is_at_the_end(&bits) ? OK : UNSUPPORTED;
}

/* The second scan (T.81 G.1.2.2): the other numbers of luma's blocks; blocks that only fill up MCUs have none. */
static int decode_ac(const Image *image, Bits bits, int16_t *plane) {
    const Component *luma = &image->components[0];
    const Huffman *table = &image->ac_tables[image->ac_table];
    const int32_t *quantisers = image->quantisers[luma->quantiser_table];
    int rows = (image->height_px + 7) / 8, columns = (image->width_px + 7) / 8;
    int32_t scale = 1 << image->scans[1].low_bit, num_without = 0; /* blocks to come that have no more (EOBRUN) */
    for (int i = 1; i <= image->last_ac; i++)
        if (quantisers[i] < 1 || quantisers[i] > LARGEST_QUANTISER) return UNSUPPORTED;
    for (int row = 0; row < rows; row++) {
        int16_t *block = plane + (size_t)row * luma->columns * NUM_KEPT;
        for (int column = 0; column < columns; column++, block += NUM_KEPT) {
            if (num_without > 0) {
                num_without--;
                continue;
            }
            for (int k = 1; k <= image->last_ac; k++) {
                refill(&bits);
                int symbol = next_symbol(&bits, table), run = symbol >> 4, category = symbol & 15;
                if (symbol < 0 || category > LARGEST_CATEGORY) return UNSUPPORTED;
                if (category) {
                    k += run;
                    if (k > image->last_ac) return UNSUPPORTED;
                    int32_t value = next_value(&bits, category) * scale * quantisers[k];
                    if (is_too_large(value)) return UNSUPPORTED;
                    block[k] = (int16_t)value;
                } else if (run == 15) {
                    return UNSUPPORTED; /* sixteen zeros are more than there is room for */
                } else {
                    num_without = (1 << run) - 1 + next_bits(&bits, run);
                    break;
                }
            }
            if (is_cut_short(&bits)) return UNSUPPORTED;
        }
    }
    return num_without == 0 && is_at_the_end(&bits) ? OK : UNSUPPORTED;
}

static inline int32_t descaled(int32_t value, int num_bits) { return (value + (1 << (num_bits - 1))) >> num_bits; }

static inline uint8_t clamped(int32_t value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

/* jidctred.c, jpeg_idct_1x1, which jpeg_idct_2x2, 4x4 and islow equal where DC is all there is. */
static inline uint8_t mean(int32_t dc) { return clamped(descaled(dc, 3) + 128); }

/* jidctred.c, jpeg_idct_4x4, of coefficients in zigzag order that are 0 from frequency 3 on: its fixed-point numbers
 * have 13 bits behind the point, and what stands between columns and rows has 2. */
enum { F_1_847759065 = 15137, F_1_061594337 = 8697, F_2_562915447 = 20995 };

static int idct_4x4(const int16_t *in, uint8_t *out, size_t stride) {
    static const int places[3][3] = {{0, 2, 3}, {1, 4, -1}, {5, -1, -1}}; /* by column and row */
    int32_t between[4][3];
    for (int x = 0; x < 3; x++) {
        int32_t c0 = in[places[x][0]], c1 = x < 2 ? in[places[x][1]] : 0, c2 = x < 1 ? in[places[x][2]] : 0;
        int32_t even = c0 * (1 << 14), far = c2 * F_1_847759065;
        int32_t outer = c1 * F_2_562915447, inner = c1 * F_1_061594337;
        between[0][x] = descaled(even + far + outer, 12), between[3][x] = descaled(even + far - outer, 12);
        between[1][x] = descaled(even - far + inner, 12), between[2][x] = descaled(even - far - inner, 12);
    }
    for (int y = 0; y < 4; y++, out += stride) {
        int32_t even = between[y][0] * (1 << 14), far = between[y][2] * F_1_847759065;
        int32_t outer = between[y][1] * F_2_562915447, inner = between[y][1] * F_1_061594337;
        int32_t values[4] = {
            descaled(even + far + outer, 19), descaled(even - far + inner, 19),
            descaled(even - far - inner, 19), descaled(even + far - outer, 19),
        };
        for (int x = 0; x < 4; x++) {
            if (values[x] < -512 || values[x] > 511) return UNSUPPORTED; /* libjpeg's table of limits wraps */
            out[x] = clamped(values[x] + 128);
        }
    }
    return OK;
}

/* One row of blocks as pixels: [side, num_blocks * side]. */
static int luma_strip(const int16_t *blocks, int num_blocks, int kept, int side, uint8_t *out) {
    size_t stride = (size_t)num_blocks * side;
    for (int i = 0; i < num_blocks; i++, blocks += kept, out += side) {
        if (side == 1) *out = mean(*blocks);
        else if (idct_4x4(blocks, out, stride) != OK) return UNSUPPORTED;
    }
    return OK;
}

/* jdcolor.c, ycc_rgb_convert: 16 bits behind the point. */
enum { HALF = 1 << 15, RED_CR = 91881, BLUE_CB = 116130, GREEN_CR = -46802, GREEN_CB = -22554 };

/* RGB of `columns` pixels from `luma` on, which begin at x = left; chroma is one number per 1 << shift of them. */
static void to_rgb(const uint8_t *luma, const int16_t *blue, const int16_t *red, int left, int columns, int shift,
                   uint8_t *out) {
    for (int x = left, end = left + columns; x < end;) {
        int32_t cb = mean(blue[x >> shift]) - 128, cr = mean(red[x >> shift]) - 128;
        int32_t r = (RED_CR * cr + HALF) >> 16, b = (BLUE_CB * cb + HALF) >> 16;
        int32_t g = (GREEN_CB * cb + GREEN_CR * cr + HALF) >> 16;
        int last = ((x >> shift) + 1) << shift;
        for (last = last < end ? last : end; x < last; x++, luma++, out += 3)
            out[0] = clamped(*luma + r), out[1] = clamped(*luma + g), out[2] = clamped(*luma + b);
    }
}

/* The rectangle, from the blocks that it lies in; `strip` has room for a row of luma's blocks as pixels. */
static int show(const Image *image, int16_t *const *planes, const int *kept, int side, int top, int left, int rows,
                int columns, uint8_t *strip, uint8_t *out) {
    const Component *luma = &image->components[0], *chroma = &image->components[1];
    int first = left / side, num_blocks = (left + columns - 1) / side - first + 1;
    int side_bits = side == 4 ? 2 : 0, x_shift = side_bits + image->max_h - 1, y_shift = side_bits + image->max_v - 1;
    size_t stride = (size_t)num_blocks * side;
    for (int y = top, row = -1; y < top + rows; y++, out += 3 * (size_t)columns) {
        if (row != y / side) {
            row = y / side;
            const int16_t *blocks = planes[0] + ((size_t)row * luma->columns + first) * kept[0];
            if (luma_strip(blocks, num_blocks, kept[0], side, strip) != OK) return UNSUPPORTED;
        }
        const uint8_t *line = strip + (y - row * side) * stride + (left - first * side);
        if (image->num_components == 1) {
            for (int x = 0; x < columns; x++) out[3 * x] = out[3 * x + 1] = out[3 * x + 2] = line[x];
        } else {
            size_t of_chroma = (size_t)(y >> y_shift) * chroma->columns;
            to_rgb(line, planes[1] + of_chroma, planes[2] + of_chroma, left, columns, x_shift, out);
        }
    }
    return OK;
}

static Bits open_scan(const Image *image, int number, const uint8_t *jpeg, uint8_t *room) {
    const Scan *scan = &image->scans[number];
    size_t num_bytes = unstuffed(jpeg + scan->first, jpeg + scan->last, room);
    return (Bits){room, room + num_bytes, 0, 0};
}

/* Whether both halves, this file and the Python beside it, speak of the same functions. */
EXPORTED int pcr_first_scans_version(void) { return 1; }

/* out: height and width in pixels, and the width of an MCU in blocks. */
EXPORTED int pcr_first_scans_frame(const uint8_t *jpeg, size_t size, int32_t *out) {
    Image image;
    int status = read_header(&image, jpeg, size);
    if (status == OK) out[0] = image.height_px, out[1] = image.width_px, out[2] = image.max_h;
    return status;
}

/* pixels, RGB [rows, columns, 3]: a rectangle of the image at 1/denominator of its size, rounded up. */
EXPORTED int pcr_first_scans_decode(const uint8_t *jpeg, size_t size, int denominator, int top, int left, int rows,
                                    int columns, uint8_t *pixels) {
    Image image;
    int status = read_header(&image, jpeg, size);
    if (status != OK) return status;
    if (denominator != (image.num_scans == 1 ? 8 : 2)) return UNSUPPORTED;
    int height = (image.height_px + denominator - 1) / denominator;
    int width = (image.width_px + denominator - 1) / denominator;
    if (top < 0 || left < 0 || rows < 1 || columns < 1) return UNSUPPORTED;
    if (rows > height || columns > width || top > height - rows || left > width - columns) return UNSUPPORTED;

    int kept[MAX_COMPONENTS] = {image.num_scans == 2 ? NUM_KEPT : 1, 1, 1}, side = 8 / denominator;
    size_t counts[MAX_COMPONENTS] = {0}, num_numbers = 0, scan_bytes = 0;
    for (int i = 0; i < image.num_components; i++) {
        counts[i] = (size_t)image.components[i].rows * image.components[i].columns * kept[i];
        num_numbers += counts[i];
    }
    for (int i = 0; i < image.num_scans; i++) {
        size_t bytes = image.scans[i].last - image.scans[i].first + PADDING_BYTES;
        scan_bytes = bytes > scan_bytes ? bytes : scan_bytes;
    }
    size_t strip_bytes = (size_t)image.components[0].columns * side * side;
    int16_t *numbers = malloc(num_numbers * sizeof *numbers + scan_bytes + strip_bytes);
    if (!numbers) return NO_MEMORY;
    int16_t *planes[MAX_COMPONENTS] = {numbers, numbers + counts[0], numbers + counts[0] + counts[1]};
    uint8_t *room = (uint8_t *)(numbers + num_numbers);
    if (image.num_scans == 2) memset(planes[0], 0, counts[0] * sizeof *numbers);
    status = decode_dc(&image, open_scan(&image, 0, jpeg, room), planes, kept);
    if (status == OK && image.num_scans == 2) status = decode_ac(&image, open_scan(&image, 1, jpeg, room), planes[0]);
    if (status == OK)
        status = show(&image, planes, kept, side, top, left, rows, columns, room + scan_bytes, pixels);
    free(numbers);
    return status;
}
