/* A decoder of 8-bit Huffman-coded JPEG: sequential and progressive, any prefix of the scans, any rectangle.
 *
 * Pixels are libjpeg-turbo's to the bit (islow inverse DCT and its reduced sizes, fancy upsampling, no block
 * smoothing). Whatever is not exactly in order is left to libjpeg, which decodes it or says what is wrong:
 * UNSUPPORTED never means that a file is bad. No byte outside the buffers is touched, whatever they hold.
 *
 * All scans go forward together, a chunk of block rows at a time, so coefficients stay in the cache, and end
 * behind the rectangle. Entropy-coded bytes are unstuffed and bit-reversed once: bits are read from the low end.
 * Scans of AC coefficients advance two at a time, a symbol of each in turn, without branches: what one waits for
 * is hidden behind the other (see "Lanes"). A scan that refines coefficients does not touch them: by 64-bit masks
 * of positions that are not zero, its correction bits are deposited in a plane, which is added in the end.
 *
 * C11, no Python: called through ctypes, which releases the GIL meanwhile. Markers follow ITU-T T.81.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_pixels.h"

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
enum { LONGEST_BLOCK_BYTES = 256 }; /* 27 bits for its mean, 26 for each other coefficient, and what is loaded at once */
static const uint64_t MOST_PIXELS = (uint64_t)1 << 28;

/* Zigzag position to place in the block; those behind the last are written to the DC's, which is kept elsewhere. */
static const uint8_t NATURAL[64 + 256] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* ---- Huffman tables ----
 *
 * An entry says all of a symbol by the next bits, LOOKUP_BITS of them by kind of table: how many bits are its code and
 * what follows it, how far it moves on, and its value. It is 0 where they are too few to know. From the low end:
 *   6 bits: how many bits it takes
 *   1 bit: whether there is a value (of first passes), or whether blocks without symbols follow (of refinements)
 *   from bit 8: how many positions it moves on, BEHIND_BLOCK at a block's end (of first passes);
 *   or, of refinements, whether there is a value (bit 14), and whether it is negative (bit 15)
 *   16 bits: the value, or how many blocks without symbols follow; of refinements 1 << how many zeros it passes */
typedef enum { DC_SYMBOLS, SEQUENTIAL_AC, FIRST_AC, REFINED_AC } Symbols;
enum { MOST_LOOKUP_BITS = 11 };
static const int LOOKUP_BITS[] = {9, 11, 11, 10};
enum { SYMBOLS_A_WORD = 5 }; /* 57 bits at least, 11 for each */
enum { LENGTH = 63, HAS_VALUE_SHIFT = 6, MOVE_SHIFT = 8, MOVE = 255, BEHIND_BLOCK = 255, VALUE_SHIFT = 16 };
enum { IS_RUN = 1 << 6, REFINES_SHIFT = 14, REFINES = 1 << REFINES_SHIFT, IS_NEGATIVE = 1 << 15 };

typedef struct {
    int32_t entries[1 << MOST_LOOKUP_BITS];
    int32_t end[LONGEST_CODE + 1];   /* first code behind those of this length, left-aligned in 16 bits */
    int32_t shift[LONGEST_CODE + 1]; /* what makes an index of `symbols` of a code of this length */
    const uint8_t *symbols;
    Symbols kind;
    int low_bit;
} Table;

/* The entry that `bits` have; the kind is known when it is compiled. */
INLINED int32_t entry_at(const Table *table, Symbols kind, uint64_t bits) {
    return table->entries[bits & ((1u << LOOKUP_BITS[kind]) - 1)];
}

#define FOUR(n) n, n + 128, n + 64, n + 192
#define SIXTEEN(n) FOUR(n), FOUR(n + 32), FOUR(n + 16), FOUR(n + 48)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN(n + 8), SIXTEEN(n + 4), SIXTEEN(n + 12)
static const uint8_t REVERSED[256] = {SIXTY_FOUR(0), SIXTY_FOUR(2), SIXTY_FOUR(1), SIXTY_FOUR(3)};

/* Up to 16 bits, the last first. */
static inline uint32_t reversed(uint32_t bits, int count) {
    return ((uint32_t)REVERSED[bits & 255] << 8 | REVERSED[bits >> 8 & 255]) >> (16 - count);
}

/* EXTEND of T.81 F.2.2.1, of bits that are read from the low end. */
static inline int32_t extended(uint32_t bits, int size) {
    int32_t value = (int32_t)reversed(bits & ((1u << size) - 1), size);
    return bits & 1 ? value : value - (1 << size) + 1;
}

/* How many bits follow the code of a symbol. */
static inline int bits_behind(Symbols kind, int symbol) {
    int run = symbol >> 4, size = symbol & 15;
    return kind == DC_SYMBOLS || size ? size : run == 15 ? 0 : run;
}

/* `bits` are those behind the code. 0 if there is no such symbol. */
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

/* `counts`: a table as a DHT segment has it behind its class and number, already checked. */
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

/* As an entry, of a code that is longer, or has more bits behind it. */
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
    int columns, rows;   /* of blocks */
    int padded, stride;  /* blocks of a row, those that fill up the last MCU included; from row to row */
    int8_t bits[64];     /* by zigzag position, the lowest bit that has come; -1: none */
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
    const uint8_t *quantisers[NUM_TABLES]; /* as a DQT segment has them, beginning with size and number */
    const uint8_t *tables[2][NUM_TABLES];  /* as DHT segments have them, DC and AC */
    ScanHeader scans[MAX_SCANS];
} Header;

static int be16(const uint8_t *at) { return at[0] << 8 | at[1]; }

static int ceiling(int a, int b) { return (a + b - 1) / b; }

/* T.81 B.2.4.1. */
static int read_quantisers(Header *header, const uint8_t *at, const uint8_t *end) {
    if (header->num_scans) return UNSUPPORTED; /* components take theirs when their first scan comes */
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
            if (code >= 1 << (i + 1) && num_symbols) return UNSUPPORTED; /* only ones are no code */
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

/* T.81 B.2.2, for the subsamplings that are met: 4:4:4, 4:2:2, 4:4:0, 4:2:0 and grey. */
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
        if (count == 1) component->h = component->v = 1; /* it fills MCUs of its own, whatever it says */
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

/* Whether three components are YCbCr, as libjpeg finds it (jdapimin.c, default_decompress_parms). */
static int is_known_colour(const Header *header) {
    const Component *of = header->components;
    if (header->num_components == 1 || header->is_jfif) return 1;
    if (header->adobe_transform >= 0) return header->adobe_transform == 1;
    return of[0].id == 1 && of[1].id == 2 && of[2].id == 3;
}

/* The band of a scan must be new, or refine what has come by one bit (T.81 G.1.1.1, and jdphuff.c's warnings). */
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
        if (number >= header->num_components) return UNSUPPORTED; /* in the frame's order */
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

/* How many units of a scan there are between restarts: blocks of its one component, or MCUs. */
static int units_per_row(const Header *header, const ScanHeader *scan) {
    return scan->num_components == 1 ? header->components[scan->components[0]].columns : header->mcu_columns;
}

static int unit_rows(const Header *header, const ScanHeader *scan) {
    return scan->num_components == 1 ? header->components[scan->components[0]].rows : header->mcu_rows;
}

/* From the first entropy-coded byte on; returns where its marker stands, or NULL if it is not as it should be. */
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

/* A segment that is no scan; `at` is behind its length. */
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
    case APP0: /* libjpeg warns of other versions */
        if (size < 14 || memcmp(at, "JFIF", 5)) return OK;
        header->is_jfif = 1;
        return at[5] == 1 ? OK : UNSUPPORTED;
    case APP14:
        if (size >= 12 && !memcmp(at, "Adobe", 5)) header->adobe_transform = at[11];
        return OK;
    default: return code == COM || (code > APP0 && code <= APP15) ? OK : UNSUPPORTED;
    }
}

/* All headers, or those up to the frame's alone. Segments lie within pieces, and so do scans. */
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

/* Where a bit is: 8 times its byte's address, and its number. */
typedef uint64_t Position;

static inline Position position_of(const uint8_t *at) { return 8 * (uint64_t)(uintptr_t)at; }

INLINED const uint8_t *byte_at(Position position) { return (const uint8_t *)(uintptr_t)(position >> 3); }

/* At least 57 bits from `position` on. */
INLINED uint64_t bits_at(Position position) { return load64(byte_at(position)) >> (position & 7); }

/* All 64. */
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

/* A scan's bytes without the zero after each FF (T.81 B.1.1.5), in reversed bits; zeros behind each segment. */
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
    memset(to, 0, LONGEST_BLOCK_BYTES); /* a sequential block is looked at when it is through */
    return to;
}

/* ---- Lanes ----
 *
 * A lane is an AC scan on its way through a chunk's blocks. A step takes one symbol. */

/* What a step changes; kept in registers. */
typedef struct {
    Position position;
    size_t block;
    uint64_t left; /* of the band: its next position (first passes), or all that is before the lane (refinements) */
} State;

typedef struct {
    State state;
    const Table *table;
    Position end_position;
    size_t end_block;
    int16_t *coefs;
    uint64_t *masks;
    uint64_t band; /* as `left` at a block's beginning */
    uint64_t behind;          /* of first passes: the position behind the band */
    uint64_t *corrections;    /* of refinements */
    int16_t values[4];        /* of refinements, by whether there is one and its sign */
    uint64_t kept[4];         /* all bits where there is one */
    int32_t run;              /* blocks to come without symbols */
    int is_bad;
} Lane;

/* The zero at the place in `mask` that `nth` has among its bits: 1 << n, or 0 for none. */
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

/* Which bit it is; 64 for none. */
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

/* The low bits of `bits`, at the places of `mask`. */
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

/* How many steps may be made before the end is looked for again: a few go beyond it, where zeros are. */
INLINED uint64_t safe_steps(const Lane *lane, const State *state) {
    if (state->position > lane->end_position) return 0;
    return 1 + (lane->end_position - state->position) / MOST_BITS_A_STEP;
}

/* A lane that cannot go on is through. */
INLINED void give_up(Lane *lane, State *state) { lane->is_bad = 1, state->block = lane->end_block; }

/* `word` has the bits from its position on, LOOKUP_BITS of them at least. Returns it without the symbol's; 0: load it
 * again. */
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
    if (RARELY((uint64_t)(left + 127) < 127)) { /* the band ends within it; BEHIND_BLOCK is more */
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

/* Blocks without symbols, what is left of this one first: corrections alone. */
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
        *steps = 1; /* it took more bits than a step may */
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
    if (RARELY(place & entry >> (REFINES_SHIFT - 6))) { /* no place for a value: both have bit 6 */
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

/* Both until one is through. */
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
/* Alone, what a step waits for is not hidden: bits are kept for the next symbols, rather than loaded for each. */
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
    int16_t *coefs;                    /* [blocks][64], natural order, without the first */
    uint64_t *masks;                   /* [blocks], bit k: position k of the zigzag order is not zero */
    int16_t *dc;                       /* [rows][padded] */
    uint64_t *corrections[MAX_BITS];   /* by bit, [blocks] */
} Slot;

typedef struct {
    const ScanHeader *header;
    Table *dc_tables[MAX_COMPONENTS], *ac_tables[MAX_COMPONENTS];
    uint8_t *stream;
    Segment *segments;
    uint64_t before; /* scans that must have done a chunk before it, as bits */
    int chunk;       /* the next */
    int segment;
    uint64_t position;
    int64_t left;   /* units up to the next restart */
    int32_t run;    /* blocks to come without symbols (EOBRUN) */
    int32_t predicted[MAX_COMPONENTS];
    size_t block, num_blocks; /* of its chunk, of AC scans */
} Scan;

typedef struct {
    const Header *header;
    Scan scans[MAX_SCANS];
    int num_scans;
    Slot slots[NUM_SLOTS][MAX_COMPONENTS];
    int rows_per_chunk, num_rows, num_chunks, num_shown; /* of MCUs; chunks that are wanted, and through */
    int has_pdep;
    Lane lanes[2];
    Scan *of_lane[2];
    Quantiser quantisers[MAX_COMPONENTS];
    void *memory;
} Decoder;

/* How many MCU rows a chunk has. */
static int rows_of_chunk(const Decoder *decoder, int chunk) {
    int left = decoder->num_rows - chunk * decoder->rows_per_chunk;
    return left < decoder->rows_per_chunk ? left : decoder->rows_per_chunk;
}

/* Of block rows of a component: the last chunk ends with the image. */
static int block_rows_of_chunk(const Decoder *decoder, int chunk, const Component *component) {
    int first = chunk * decoder->rows_per_chunk * component->v;
    int last = first + rows_of_chunk(decoder, chunk) * component->v;
    return (last < component->rows ? last : component->rows) - first;
}

static int is_at_the_end(const Scan *scan) {
    const Segment *segment = &scan->segments[scan->segment];
    return scan->position <= segment->end && segment->end - scan->position < 8 && scan->run == 0;
}

/* Before a unit: a new segment where one is due. */
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

/* The blocks of an MCU, or the one of a scan of one component, and where those of a row lie. */
typedef struct {
    int count, components[6]; /* of the scan */
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

/* So many units of a scan of DC alone: its last bits. */
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

/* Its first. Bits are loaded for two blocks at once: 54 at most. */
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

/* So many units of a sequential scan. */
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
                if (RARELY(!entry)) { /* it may have more bits than are known */
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

/* A chunk of a scan that holds DC: sequential, or a pass over DC alone. */
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

/* An AC scan into a lane, up to its chunk's end or the next restart. */
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

/* A scan is through with a chunk; with the last of the image, nothing may be left. */
static int end_chunk(Decoder *decoder, Scan *scan) {
    scan->chunk++, scan->block = 0;
    if (scan->chunk < decoder->num_chunks || decoder->num_rows < decoder->header->mcu_rows) return OK;
    return is_at_the_end(scan) && scan->segment == scan->header->num_segments - 1 ? OK : UNSUPPORTED;
}

/* The scan that is furthest behind of those that can go on; NULL if all must wait. */
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

/* All scans, until they are through with chunk `num_shown`; some go on ahead of it. */
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

/* ---- Pixels ---- */

enum { EDGE_BYTES = 64 }; /* before and behind rows of samples */

/* A component's samples: two MCU rows, of which the older is still looked at. */
typedef struct {
    int size, width, height; /* of the inverse DCT; in samples */
    int first_block, end_block;
    uint8_t *samples;
    ptrdiff_t stride;
    int ring_rows, levels;
    int bits[MAX_BITS]; /* that scans refine */
    int has_ac;
} Plane;

typedef struct {
    int denominator, top, left, rows, columns, mode, mcu_px, first_row, next_line;
    Plane planes[MAX_COMPONENTS];
    uint8_t *pixels;
    ptrdiff_t stride;
} View;

/* jdmaster.c, jpeg_calc_output_dimensions: the inverse DCT enlarges chroma where it can. */
static int idct_size(const Header *header, const Component *component, int smallest) {
    int size = smallest;
    while (size < 8 && header->max_h * smallest % (component->h * size * 2) == 0 &&
           header->max_v * smallest % (component->v * size * 2) == 0)
        size *= 2;
    return size;
}

/* jdsample.c, jinit_upsampler; rows at which modes that look above or below differ are told apart later. */
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

/* Which MCU rows and blocks it takes; returns how many MCU rows there are up to its last. */
static int open_view(View *view, const Header *header) {
    int smallest = 8 / view->denominator;
    for (int i = 0; i < header->num_components; i++) {
        const Component *component = &header->components[i];
        Plane *plane = &view->planes[i];
        plane->size = idct_size(header, component, smallest);
        plane->width = ceiling(header->width_px * component->h * plane->size, 8 * header->max_h);
        plane->height = ceiling(header->height_px * component->v * plane->size, 8 * header->max_v);
        int columns = 8 * header->max_h, step = component->h * plane->size; /* MCU: pixels at full size, samples */
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

/* Lines that can be made when MCU row `row` is there. */
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

/* Corrections of one block, by the levels of its component: a bit more for what is positive, less for what is negative. */
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
/* For every place of a block the byte, and the bit in it, that its zigzag position has in a mask. */
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
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) { /* whichever threads come first write the same */
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

/* Blocks as they are: with their DC and corrections. */
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

/* One MCU row of a chunk, the `row`-th of the image, as samples and pixels. */
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

/* Given out in order; without memory, counted. */
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

/* The scans that count: at size 1, of a block its mean alone is looked at. */
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

/* Forget a chunk that was shown: its room is for another. */
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

/* Whether a CPU has pdep that is fast: AMD's has not before Zen 3 (family 19h). */
static int find_pdep(void) {
    const char *wanted = getenv("PCR_EXP_BITS");
#if defined(__x86_64__)
    if (wanted && !strcmp(wanted, "plain")) return 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("popcnt")) return 0;
    return !(__builtin_cpu_is("bdver4") || __builtin_cpu_is("znver1") || __builtin_cpu_is("znver2"));
#else
    (void)wanted;
    return 0;
#endif
}

static int has_fast_pdep(void) {
    static int known = -1; /* whichever thread comes first writes the same */
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (found < 0) __atomic_store_n(&known, found = find_pdep(), __ATOMIC_RELAXED);
    return found;
}

/* What is done with every chunk when it is through. */
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

/* All blocks, [rows][columns][64] of each component, for tests and statistics. */
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

/* ---- For others ---- */

/* Whether both halves, this file and the Python beside it, speak of the same functions. */
EXPORTED int pcr_decoder_version(void) { return 2; }

/* Which ways are taken on this machine, for pixels and for bits. */
EXPORTED const char *pcr_decoder_paths(void) {
    static const char *const names[2][4] = {
        {"plain, plain", "avx2, plain", "sse41, plain", "neon, plain"},
        {"plain, pdep", "avx2, pdep", "sse41, pdep", "neon, pdep"},
    };
    int path = simd_path();
    return names[has_fast_pdep()][path == AVX2 ? 1 : path == SSE41 ? 2 : path == NEON ? 3 : 0];
}

/* out: height, width, and the width of an MCU in pixels; whether quantisers have 16 bits; the number of components;
 * then for each its quantisation table, block rows and blocks per row. */
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

/* RGB [rows, columns, 3], `stride` bytes from row to row: a rectangle of the image at 1/denominator of its size,
 * rounded up. If `bits` [components][64] are given, of a file whose scans bring just these, as `Component.bits`. */
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

/* int16 [rows, columns, 64] of blocks of each component, in natural order: those that `pcr_decoder_frame` counts. */
EXPORTED int pcr_decoder_coefficients(const Piece *pieces, size_t num_pieces, int16_t *const *out) {
    Header header;
    if (read_header(&header, pieces, num_pieces, 0) != OK) return UNSUPPORTED;
    View view = {.denominator = 1, .rows = header.height_px, .columns = header.width_px};
    int16_t *places[MAX_COMPONENTS];
    for (int i = 0; i < header.num_components; i++) places[i] = out[i];
    return decode_all(&header, &view, copy_chunk, places);
}
