/* Damages JPEGs from standard input, each behind its length, and decodes them along the path of its environment.
 *
 * Arguments: how many files, a seed, and in how many threads each is decoded besides; without these, damaged files are
 * written, each behind its length. Ends with status 1, and a line that says why, where a rectangle, pieces or another thread give other pixels than the whole, or work is not bounded
 * by blocks and scans, or memory by the width. Prints the path, how many it could decode, and not, and a checksum of
 * all results, which is every path's. Buffers are exactly as large as they must be: AddressSanitizer sees the rest. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local size_t given; /* bytes of memory */

static void *counted_malloc(size_t bytes) { return given += bytes, malloc(bytes); }
static void *counted_calloc(size_t count, size_t bytes) { return given += count * bytes, calloc(count, bytes); }

#define malloc counted_malloc
#define calloc counted_calloc
#include "decoder.c"
#undef malloc
#undef calloc

enum { MOST_FILES = 256, MOST_BYTES = 1 << 20, MOST_SHOWN_PX = 1 << 15, MOST_THREADS = 64, MOST_PIECES = 80 };

static _Thread_local uint64_t state, steps;

#if defined(__clang__)
#define NOT_COUNTED __attribute__((no_sanitize("coverage")))
#else
#define NOT_COUNTED __attribute__((no_sanitize_coverage))
#endif
NOT_COUNTED void __sanitizer_cov_trace_pc(void) { steps++; } /* the compiler calls it at every branch */

static size_t drawn(size_t below) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (size_t)(state * 2685821657736338717u >> 33) % below;
}

static void failed(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void *room(size_t bytes) {
    void *at = malloc(bytes);
    if (!at) exit(2);
    return at;
}

/* ---- Damage ---- */

typedef struct {
    uint8_t *bytes;
    size_t size;
} File;

static File files[MOST_FILES];
static size_t num_files;

static const uint8_t CODES[] = {SOF0, SOF1, SOF2, 0xC3, DHT, RST0, RST0 + 1, RST7, SOI, EOI, EOI, SOS, DQT, 0xDC, DRI, APP0, APP14, COM, 0xFF, 0};

/* Where a marker's code stands, from somewhere on. */
static size_t marker_of(const File *file, size_t from) {
    for (size_t i = 0; i + 1 < file->size; i++) {
        size_t at = (from + i) % (file->size - 1);
        if (file->bytes[at] == 0xFF && file->bytes[at + 1] >= SOF0 && file->bytes[at + 1] < 0xFF) return at + 1;
    }
    return 0;
}

static void replace(File *file, size_t at, size_t removed, const uint8_t *with, size_t size) {
    if (file->size - removed + size > MOST_BYTES) return;
    memmove(file->bytes + at + size, file->bytes + at + removed, file->size - at - removed);
    memmove(file->bytes + at, with, size);
    file->size += size - removed;
}

static uint8_t drawn_byte(uint8_t old) {
    const uint8_t values[] = {0, 1, 0xFF, (uint8_t)drawn(256), (uint8_t)(old ^ 1 << drawn(8)), (uint8_t)(old + 1), (uint8_t)(old - 1)};
    return values[drawn(sizeof values)];
}

static void damage(File *file) {
    uint8_t copied[512];
    size_t at = drawn(file->size), marker = marker_of(file, at), left = file->size - at;
    size_t count = 1 + drawn(drawn(3) ? 4 : sizeof copied);
    count = count < left ? count : left;
    memcpy(copied, file->bytes + at, count);
    switch (drawn(10)) {
    case 0: file->bytes[marker] = CODES[drawn(sizeof CODES)]; break;
    case 1: replace(file, at, count, copied, 0); break;
    case 2: replace(file, drawn(2) ? drawn(file->size) : marker - !!marker, 0, copied, count); break;
    case 3: replace(file, at, left, (const uint8_t[]){0xFF, EOI}, drawn(4) ? 2 : 0); break;
    case 4: { /* another's end */
        const File *other = &files[drawn(num_files)];
        size_t from = marker_of(other, drawn(other->size));
        if (marker && from && drawn(2)) replace(file, marker, file->size - marker, other->bytes + from, other->size - from);
        break;
    }
    case 5: /* longer codes of the same symbols */
        for (size_t i = 0; file->bytes[marker] != DHT && i < 8; i++) marker = marker_of(file, drawn(file->size));
        if (file->bytes[marker] == DHT && marker + 4 + LONGEST_CODE <= file->size) {
            uint8_t *counts = file->bytes + marker + 4, a = (uint8_t)drawn(LONGEST_CODE), b = (uint8_t)drawn(LONGEST_CODE);
            for (int i = 0; i < 15 && !drawn(2); i++) counts[15] += counts[i], counts[i] = 0;
            uint8_t moved = (uint8_t)(counts[a] ? 1 + drawn(counts[a]) : 0);
            counts[a] -= moved, counts[b] += moved;
        }
        break;
    case 6: case 7: /* a header's field */
        at = marker + 1 + drawn(24);
        at = at < file->size ? at : marker; /* fall through */
    default: file->bytes[at] = drawn_byte(file->bytes[at]);
    }
    if (!file->size) file->bytes[file->size++] = 0xFF;
}

/* ---- Decoding ---- */

typedef struct {
    int denominator, height, width, top, left, rows, columns;
} Rectangle;

static uint64_t hashed(uint64_t hash, const void *bytes, size_t size) { /* FNV-1a */
    for (const uint8_t *at = bytes, *end = at + size; at < end; at++) hash = (hash ^ *at) * 1099511628211u;
    return hash;
}

typedef struct {
    uint64_t steps, bytes;
} Bounds;

/* What a file may take: of work each block by each scan, the tables of scans, and its bytes; of memory some MCU rows,
 * the tables, and its bytes: none where its frame is refused. */
static Bounds bounds_of(const File *file, const int32_t *frame) {
    uint64_t num_scans = 0, blocks = (uint64_t)frame[4] * ((uint64_t)frame[0] / 8 + 2) * ((uint64_t)frame[1] / 8 + 2);
    for (size_t i = 0; i + 1 < file->size; i++) num_scans += file->bytes[i] == 0xFF && file->bytes[i + 1] == SOS;
    num_scans = num_scans < MAX_SCANS ? num_scans : MAX_SCANS;
    if (!frame[4]) return (Bounds){20000 + 50 * file->size, 0};
    uint64_t table_bytes = 2 * MAX_COMPONENTS * (sizeof(Table) + PADDING_BYTES) + 2 * LONGEST_BLOCK_BYTES;
    return (Bounds){
        500 * blocks * (1 + num_scans) + 20000 * (1 + num_scans) + 50 * file->size,
        (1 << 20) + sizeof(Decoder) + num_scans * table_bytes + 100 * file->size + 600 * (uint64_t)frame[1],
    };
}

static void check_work(Bounds before, Bounds bounds) {
    if (steps - before.steps > bounds.steps) failed("more work than blocks times scans");
    if (given - before.bytes > bounds.bytes) failed("more memory than some rows of blocks");
}

/* NULL if it cannot be decoded; the rectangle's pixels side by side. */
static uint8_t *decoded(const Piece *pieces, size_t num_pieces, Rectangle r, Bounds bounds) {
    size_t row = 3 * (size_t)r.columns, gap = row % 7, bytes = ((size_t)r.rows - 1) * (row + gap) + row;
    uint8_t *pixels = room(bytes);
    Bounds before = {steps, given};
    memset(pixels, 77, bytes);
    int status = pcr_decoder_decode(pieces, num_pieces, r.denominator, r.top, r.left, r.rows, r.columns, pixels,
                                    (ptrdiff_t)(row + gap), NULL);
    check_work(before, bounds);
    if (status != OK) return free(pixels), NULL;
    for (size_t y = 0; y + 1 < (size_t)r.rows; y++)
        for (size_t x = 0; x < gap; x++)
            if (pixels[y * (row + gap) + row + x] != 77) failed("wrote behind a row");
    for (size_t y = 0; y < (size_t)r.rows; y++) memmove(pixels + y * row, pixels + y * (row + gap), row);
    return pixels;
}

static Rectangle part_of(Rectangle whole, int most_px) {
    Rectangle r = whole;
    r.rows = 1 + (int)drawn((size_t)(r.height < most_px ? r.height : most_px));
    r.columns = 1 + (int)drawn((size_t)(r.width < most_px ? r.width : most_px));
    r.top = (int)drawn((size_t)(r.height - r.rows + 1)), r.left = (int)drawn((size_t)(r.width - r.columns + 1));
    return r;
}

/* The same bytes, cut anywhere, or before scans as records have them; each piece in memory of its own. */
static size_t cut(const File *file, Piece *pieces) {
    size_t count = 0, from = 0, anywhere = drawn(3) ? 0 : 1 + drawn(4);
    for (size_t at = 1; at <= file->size && count < MOST_PIECES; at++) {
        int is_last = at == file->size || count == MOST_PIECES - 1;
        int is_scan = at + 1 < file->size && file->bytes[at] == 0xFF && (file->bytes[at + 1] == SOS || file->bytes[at + 1] == DHT);
        if (!is_last && (anywhere ? drawn(file->size) >= anywhere : !is_scan || drawn(4) == 0)) continue;
        at = is_last ? file->size : at;
        uint8_t *bytes = room(at - from);
        pieces[count++] = (Piece){memcpy(bytes, file->bytes + from, at - from), at - from};
        from = at;
    }
    return count;
}

static void check_part(Rectangle r, const uint8_t *whole, const uint8_t *part, const char *otherwise) {
    if (!part) failed(otherwise);
    for (int y = 0; y < r.rows; y++) {
        size_t at = 3 * ((size_t)(r.top + y) * (size_t)r.width + (size_t)r.left), row = 3 * (size_t)r.columns;
        if (memcmp(whole + at, part + (size_t)y * row, row)) failed(otherwise);
    }
}

static uint64_t coefficients_of(const Piece *piece, const int32_t *frame, uint64_t hash, Bounds bounds) {
    int16_t *of[MAX_COMPONENTS] = {NULL};
    size_t bytes[MAX_COMPONENTS] = {0};
    for (int i = 0; i < frame[4]; i++) {
        bytes[i] = (size_t)frame[6 + 3 * i] * (size_t)frame[7 + 3 * i] * 64 * sizeof **of;
        of[i] = room(bytes[i]);
    }
    Bounds before = {steps, given};
    int status = pcr_decoder_coefficients(piece, 1, of);
    check_work(before, bounds);
    for (int i = 0; i < frame[4]; i++) {
        if (status == OK) hash = hashed(hash, of[i], bytes[i]);
        free(of[i]);
    }
    return hash;
}

/* A checksum of all that a file gives; `is_decoded` says whether it gave pixels. */
static uint64_t check(const File *file, int *is_decoded) {
    uint8_t *bytes = memcpy(room(file->size), file->bytes, file->size);
    Piece piece = {bytes, file->size}, pieces[MOST_PIECES] = {{NULL, 0}};
    int32_t frame[5 + 3 * MAX_COMPONENTS] = {0};
    uint64_t hash = 14695981039346656037u;
    Bounds before = {steps, given};
    int status = pcr_decoder_frame(&piece, 1, frame), d = 1 << drawn(4);
    check_work(before, (Bounds){20000 + 50 * file->size, 0});
    Rectangle whole = {d, 70, 70, 0, 0, 70, 70};
    if (status == OK) {
        whole.height = whole.rows = ceiling(frame[0], d), whole.width = whole.columns = ceiling(frame[1], d);
    }
    Bounds bounds = bounds_of(file, frame);
    int is_small = status == OK && (int64_t)frame[0] * frame[1] <= MOST_SHOWN_PX;
    Rectangle part = part_of(whole, is_small ? 1 << 16 : 40);
    uint8_t *all = is_small ? decoded(&piece, 1, whole, bounds) : NULL, *of_part = decoded(&piece, 1, part, bounds);
    if (all) {
        size_t count = cut(file, pieces), size = 0;
        check_part(part, all, of_part, "a part is not cut from the whole");
        uint8_t *of_pieces = decoded(pieces, count, whole, bounds);
        if (of_pieces) check_part(whole, all, of_pieces, "pieces are not the whole");
        for (size_t i = 0; i < count; i++) size += pieces[i].size, free((void *)pieces[i].bytes);
        if (size != file->size) failed("pieces lack bytes");
        free(of_pieces);
        hash = hashed(hash, all, 3 * (size_t)whole.rows * (size_t)whole.columns);
    }
    if (of_part) hash = hashed(hash, of_part, 3 * (size_t)part.rows * (size_t)part.columns);
    if (is_small && drawn(4) == 0) hash = coefficients_of(&piece, frame, hash, bounds);
    *is_decoded = of_part != NULL;
    free(all), free(of_part), free(bytes);
    return hash;
}

/* ---- All of them ---- */

typedef struct {
    size_t count, seed, decoded;
    uint64_t sum;
} Work;

/* The first are as they came. */
static void make(File *file, size_t number, size_t seed) {
    state = (seed << 32) + 2 * number + 1;
    for (int j = 0; j < 8; j++) drawn(2);
    const File *from = &files[number < num_files ? number : drawn(num_files)];
    memcpy(file->bytes, from->bytes, file->size = from->size);
    for (size_t j = number < num_files ? 0 : 1 + drawn(drawn(4) ? 1 : 6); j > 0; j--) damage(file);
}

static void *run(void *context) {
    Work *work = context;
    File file = {room(MOST_BYTES), 0};
    for (size_t i = 0; i < work->count; i++) {
        make(&file, i, work->seed);
        int is_decoded;
        work->sum = work->sum * 31 + check(&file, &is_decoded);
        work->decoded += (size_t)is_decoded;
    }
    free(file.bytes);
    return NULL;
}

static void write_files(size_t count, size_t seed) {
    File file = {room(MOST_BYTES), 0};
    for (size_t i = 0; i < count; i++) {
        make(&file, i, seed);
        uint32_t size = (uint32_t)file.size;
        fwrite(&size, sizeof size, 1, stdout), fwrite(file.bytes, 1, file.size, stdout);
    }
    free(file.bytes);
}

int main(int argc, char **argv) {
    uint32_t size;
    if (argc < 3) return 2;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        if (!size || size > MOST_BYTES || num_files == MOST_FILES) return 2;
        files[num_files] = (File){room(size), size};
        if (fread(files[num_files++].bytes, 1, size, stdin) != size) return 2;
    }
    pthread_t threads[MOST_THREADS];
    Work work = {strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), 0, 0}, works[MOST_THREADS];
    if (argc == 3) return write_files(work.count, work.seed), 0;
    size_t num_threads = strtoull(argv[3], NULL, 10);
    num_threads = num_threads < MOST_THREADS ? num_threads : MOST_THREADS;
    for (size_t i = 0; i < num_threads; i++) { /* first: what is made once is made by one of them */
        works[i] = work;
        if (pthread_create(&threads[i], NULL, run, &works[i])) return 2;
    }
    for (size_t i = 0; i < num_threads; i++)
        if (pthread_join(threads[i], NULL)) return 2;
    run(&work);
    for (size_t i = 0; i < num_threads; i++)
        if (works[i].sum != work.sum || works[i].decoded != work.decoded) failed("threads give other results");
    printf("%s\n%zu %zu %016llx\n", pcr_decoder_paths(), work.decoded, work.count - work.decoded,
           (unsigned long long)work.sum);
    for (size_t i = 0; i < num_files; i++) free(files[i].bytes);
    return 0;
}
