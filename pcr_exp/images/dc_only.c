/* The first scan of a progressive JPEG at 1/8 of its size, as libjpeg-turbo shows it.
 *
 * A file whose only scan brings the DC coefficients of all components holds one number per 8 x 8 block: its
 * mean. libjpeg decodes such a file through arrays of all 64 coefficients of every block; here each block is
 * one byte. The pixels are the same to the bit, because at 1/8 nothing is left to choose: the inverse DCT of
 * one coefficient is a division (jidctred.c), chroma is repeated (jdsample.c, which interpolates nothing at
 * this size), and colours are converted by the fixed-point numbers of jdcolor.c.
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
enum { MAX_COMPONENTS = 3, LARGEST_SIDE_PX = 65500, LONGEST_CODE = 16, LOOKUP_BITS = 9, LARGEST_CATEGORY = 11 };
/* An MCU may be read beyond the end: at most 6 blocks of 16 bits of code and 11 of difference, and 8 bytes at once. */
enum { PADDING_BYTES = 64 };

typedef struct {
    uint8_t short_code[1 << LOOKUP_BITS]; /* bits of the code << 4 | category, 0 where it is longer */
    int32_t end[LONGEST_CODE + 1];        /* first code after those of this length, left-aligned in 16 bits */
    int32_t shift[LONGEST_CODE + 1];      /* what makes an index of `symbols` of a code of this length */
    uint8_t symbols[16];
    int is_defined;
} Huffman;

typedef struct {
    int id, h, v, quantiser_table, huffman_table;
    int32_t quantiser;
    int columns, rows; /* of blocks, those that fill up the last MCUs included */
} Component;

typedef struct {
    int height_px, width_px, num_components, low_bit;
    int max_h, max_v, mcus_per_row, mcu_rows;
    Component components[MAX_COMPONENTS];
    int32_t quantisers[4]; /* of DC; 0: not defined */
    Huffman tables[4];
    size_t first, last; /* the scan's entropy-coded bytes */
} Image;

static int be16(const uint8_t *at) { return at[0] << 8 | at[1]; }

/* T.81 B.2.4.1; only the first of 64 entries is looked at. */
static int read_quantisers(Image *image, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        int is_wide = *at >> 4, number = *at & 15;
        if (is_wide > 1 || number > 3 || end - at < 1 + 64 * (1 + is_wide)) return UNSUPPORTED;
        image->quantisers[number] = is_wide ? be16(at + 1) : at[1];
        at += 1 + 64 * (1 + is_wide);
    }
    return OK;
}

/* T.81 B.2.4.2 and C.2: DC tables alone, of at most 16 categories. */
static int read_huffman(Image *image, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (end - at < 17 || *at > 3) return UNSUPPORTED;
        Huffman *table = &image->tables[*at];
        const uint8_t *counts = at, *symbols = at + 17; /* counts[1..16] */
        int num_symbols = 0, code = 0, k = 0;
        for (int length = 1; length <= LONGEST_CODE; length++) num_symbols += counts[length];
        if (num_symbols < 1 || num_symbols > 16 || end - symbols < num_symbols) return UNSUPPORTED;
        memset(table, 0, sizeof *table);
        for (int length = 1; length <= LONGEST_CODE; length++) {
            table->shift[length] = k - code;
            for (int i = 0; i < counts[length]; i++, k++, code++) {
                if (symbols[k] > LARGEST_CATEGORY || code >= 1 << length) return UNSUPPORTED;
                table->symbols[k] = symbols[k];
                if (length <= LOOKUP_BITS)
                    memset(table->short_code + (code << (LOOKUP_BITS - length)), length << 4 | symbols[k],
                           (size_t)1 << (LOOKUP_BITS - length));
            }
            if (code >= 1 << length) return UNSUPPORTED; /* only ones are no code (T.81 C.2) */
            table->end[length] = code << (LONGEST_CODE - length);
            code <<= 1;
        }
        table->is_defined = 1;
        at = symbols + num_symbols;
    }
    return OK;
}

/* T.81 B.2.2, for the subsamplings that are met: 4:4:4, 4:2:2, 4:4:0, 4:2:0 and grey. */
static int read_frame(Image *image, const uint8_t *at, const uint8_t *end) {
    if (image->num_components || end - at < 6 || at[0] != 8) return UNSUPPORTED;
    image->height_px = be16(at + 1), image->width_px = be16(at + 3);
    int count = at[5];
    if (count != 1 && count != 3) return UNSUPPORTED;
    if (end - at != 6 + 3 * count) return UNSUPPORTED;
    if (image->height_px < 1 || image->width_px < 1) return UNSUPPORTED;
    if (image->height_px > LARGEST_SIDE_PX || image->width_px > LARGEST_SIDE_PX) return UNSUPPORTED;
    image->num_components = count;
    for (int i = 0; i < count; i++) {
        Component *component = &image->components[i];
        const uint8_t *fields = at + 6 + 3 * i;
        component->id = fields[0], component->h = fields[1] >> 4, component->v = fields[1] & 15;
        component->quantiser_table = fields[2];
        if (component->id != i + 1 || fields[2] > 3) return UNSUPPORTED; /* other names: other colours */
        int is_subsampled = count == 3 && i == 0;
        if (component->h < 1 || component->h > 1 + is_subsampled) return UNSUPPORTED;
        if (component->v < 1 || component->v > 1 + is_subsampled) return UNSUPPORTED;
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
static int read_scan(Image *image, const uint8_t *at, const uint8_t *end) {
    int count = image->num_components;
    if (!count || end - at != 4 + 2 * count || at[0] != count) return UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        Component *component = &image->components[i];
        component->huffman_table = at[2 + 2 * i] >> 4;
        if (at[1 + 2 * i] != component->id || at[2 + 2 * i] & 15) return UNSUPPORTED;
        if (component->huffman_table > 3 || !image->tables[component->huffman_table].is_defined) return UNSUPPORTED;
        component->quantiser = image->quantisers[component->quantiser_table];
        if (component->quantiser < 1 || component->quantiser > 0x7FFF) return UNSUPPORTED;
    }
    const uint8_t *spectrum = at + 1 + 2 * count;
    image->low_bit = spectrum[2];
    return spectrum[0] == 0 && spectrum[1] == 0 && spectrum[2] <= 13 ? OK : UNSUPPORTED;
}

/* Headers, and where the only scan's bytes lie: nothing may stand between them and the end-of-image marker. */
static int read_header(Image *image, const uint8_t *jpeg, size_t size) {
    memset(image, 0, sizeof *image);
    if (size < 4 || jpeg[0] != 0xFF || jpeg[1] != SOI) return UNSUPPORTED;
    size_t at = 2;
    for (;;) {
        if (size - at < 4 || jpeg[at] != 0xFF) return UNSUPPORTED;
        int code = jpeg[at + 1], length = be16(jpeg + at + 2), status = OK;
        if (length < 2 || size - at - 2 < (size_t)length) return UNSUPPORTED;
        const uint8_t *payload = jpeg + at + 4, *end = jpeg + at + 2 + length;
        if (code == DQT) status = read_quantisers(image, payload, end);
        else if (code == DHT) status = read_huffman(image, payload, end);
        else if (code == SOF2) status = read_frame(image, payload, end);
        else if (code == SOS) status = read_scan(image, payload, end);
        else if (code != APP0 || length < 16 || memcmp(payload, "JFIF\0\1", 6)) return UNSUPPORTED;
        if (status != OK) return status;
        at += 2 + (size_t)length;
        if (code == SOS) break;
    }
    image->first = at;
    for (;;) {
        const uint8_t *marker = memchr(jpeg + at, 0xFF, size - at);
        if (!marker || marker + 1 >= jpeg + size) return UNSUPPORTED;
        at = (size_t)(marker - jpeg);
        if (jpeg[at + 1] == EOI) break;
        if (jpeg[at + 1] != 0) return UNSUPPORTED;
        at += 2;
    }
    image->last = at;
    return OK;
}

/* The scan's bytes without the zero after each FF (T.81 B.1.1.5); returns how many. */
static size_t unstuffed(const uint8_t *from, const uint8_t *end, uint8_t *out) {
    uint8_t *to = out;
    while (from < end) {
        const uint8_t *marker = memchr(from, 0xFF, (size_t)(end - from));
        size_t count = marker ? (size_t)(marker - from) + 1 : (size_t)(end - from);
        memcpy(to, from, count);
        to += count, from += count + (marker != NULL);
    }
    return (size_t)(to - out);
}

/* The next bits, left-aligned in `word`: at least 56 of them after `refill`. */
typedef struct {
    const uint8_t *next;
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

/* The category of the next difference (T.81 F.2.2.1); negative if there is no such code. */
static inline int next_category(Bits *bits, const Huffman *table) {
    int code = table->short_code[bits->word >> (64 - LOOKUP_BITS)];
    if (code) {
        drop(bits, code >> 4);
        return code & 15;
    }
    int32_t aligned = (int32_t)(bits->word >> 48);
    int length = LOOKUP_BITS + 1;
    while (length <= LONGEST_CODE && aligned >= table->end[length]) length++;
    if (length > LONGEST_CODE) return -1;
    int index = (aligned >> (LONGEST_CODE - length)) + table->shift[length];
    if (index < 0 || index > 15) return -1;
    drop(bits, length);
    return table->symbols[index];
}

/* EXTEND of T.81 F.2.2.1: below half of a category's range, differences are negative. No branch: it is a coin's toss. */
static inline int32_t next_difference(Bits *bits, int category) {
    int32_t value = (int32_t)(bits->word >> 32 >> (32 - category));
    int32_t negative = (int32_t)(~bits->word >> 63) * ((1 << category) - 1);
    drop(bits, category);
    return value - negative;
}

static inline uint8_t clamped(int32_t value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

/* Each block as the value of its pixel: planes[i] is [rows, columns] of components[i]. */
static int decode_blocks(const Image *image, const uint8_t *bytes, size_t num_bytes, uint8_t *const *planes) {
    int32_t predicted[MAX_COMPONENTS] = {0};
    Bits bits = {bytes, 0, 0};
    for (int row = 0; row < image->mcu_rows; row++) {
        for (int column = 0; column < image->mcus_per_row; column++) {
            for (int i = 0; i < image->num_components; i++) {
                const Component *component = &image->components[i];
                const Huffman *table = &image->tables[component->huffman_table];
                uint8_t *line = planes[i] + (size_t)row * component->v * component->columns + column * component->h;
                for (int y = 0; y < component->v; y++, line += component->columns) {
                    for (int x = 0; x < component->h; x++) {
                        refill(&bits);
                        int category = next_category(&bits, table);
                        if (category < 0) return UNSUPPORTED;
                        predicted[i] += next_difference(&bits, category);
                        int32_t coefficient = predicted[i] * (1 << image->low_bit);
                        if (coefficient < -0x8000 || coefficient > 0x7FFF) return UNSUPPORTED;
                        /* jidctred.c, jpeg_idct_1x1: DESCALE by 3 bits; its table of limits wraps beyond 10. */
                        int32_t value = (coefficient * component->quantiser + 4) >> 3;
                        if (value < -512 || value > 511) return UNSUPPORTED;
                        line[x] = clamped(value + 128);
                    }
                }
            }
            if (bits.next > bytes + num_bytes + 8) return UNSUPPORTED; /* cut short: libjpeg will say so */
        }
    }
    int64_t num_left = 8 * (int64_t)(bytes + num_bytes - bits.next) + bits.num_bits;
    return num_left >= 0 && num_left < 8 ? OK : UNSUPPORTED; /* bytes are left: libjpeg warns of them */
}

/* jdcolor.c, ycc_rgb_convert: 16 bits behind the point. */
enum { HALF = 1 << 15, RED_CR = 91881, BLUE_CB = 116130, GREEN_CR = -46802, GREEN_CB = -22554 };

static void to_rgb(const Image *image, uint8_t *const *planes, int top, int left, int rows, int columns,
                   uint8_t *out) {
    int stride = image->components[0].columns, h_shift = image->max_h - 1, v_shift = image->max_v - 1;
    for (int y = top; y < top + rows; y++) {
        const uint8_t *luma = planes[0] + (size_t)y * stride;
        if (image->num_components == 1) {
            for (int x = left; x < left + columns; x++, out += 3) out[0] = out[1] = out[2] = luma[x];
            continue;
        }
        size_t line = (size_t)(y >> v_shift) * image->components[1].columns;
        const uint8_t *blue = planes[1] + line, *red = planes[2] + line;
        for (int x = left; x < left + columns; x++, out += 3) {
            int32_t cb = blue[x >> h_shift] - 128, cr = red[x >> h_shift] - 128;
            out[0] = clamped(luma[x] + ((RED_CR * cr + HALF) >> 16));
            out[1] = clamped(luma[x] + ((GREEN_CB * cb + GREEN_CR * cr + HALF) >> 16));
            out[2] = clamped(luma[x] + ((BLUE_CB * cb + HALF) >> 16));
        }
    }
}

/* Whether both halves, this file and the Python beside it, speak of the same functions. */
EXPORTED int pcr_dc_version(void) { return 1; }

/* out: height and width in pixels, and the width of an MCU in blocks. */
EXPORTED int pcr_dc_frame(const uint8_t *jpeg, size_t size, int32_t *out) {
    Image image;
    int status = read_header(&image, jpeg, size);
    if (status == OK) out[0] = image.height_px, out[1] = image.width_px, out[2] = image.max_h;
    return status;
}

/* pixels, RGB [rows, columns, 3]: a rectangle of the image at 1/8 of its size, rounded up. */
EXPORTED int pcr_dc_decode(const uint8_t *jpeg, size_t size, int top, int left, int rows, int columns,
                           uint8_t *pixels) {
    Image image;
    int status = read_header(&image, jpeg, size);
    if (status != OK) return status;
    int height = (image.height_px + 7) / 8, width = (image.width_px + 7) / 8;
    if (top < 0 || left < 0 || rows < 1 || columns < 1) return UNSUPPORTED;
    if (rows > height || columns > width || top > height - rows || left > width - columns) return UNSUPPORTED;
    size_t scan_bytes = image.last - image.first, num_blocks = 0;
    for (int i = 0; i < image.num_components; i++)
        num_blocks += (size_t)image.components[i].rows * image.components[i].columns;
    uint8_t *bytes = malloc(scan_bytes + PADDING_BYTES + num_blocks);
    if (!bytes) return NO_MEMORY;
    size_t num_bytes = unstuffed(jpeg + image.first, jpeg + image.last, bytes);
    memset(bytes + num_bytes, 0, PADDING_BYTES);
    uint8_t *planes[MAX_COMPONENTS] = {bytes + scan_bytes + PADDING_BYTES};
    for (int i = 1; i < image.num_components; i++)
        planes[i] = planes[i - 1] + (size_t)image.components[i - 1].rows * image.components[i - 1].columns;
    status = decode_blocks(&image, bytes, num_bytes, planes);
    if (status == OK) to_rgb(&image, planes, top, left, rows, columns, pixels);
    free(bytes);
    return status;
}
