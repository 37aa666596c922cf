/* Random blocks and rows, in buffers as large as they must be: the path of this machine against plain C.
 * Arguments: how many rounds, and the seed. Prints the path; the first difference ends it with status 1.
 * Sanitizers do not see all that intrinsics store, so buffers lie between pages that cannot be touched. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "decoder.c"

enum { PADDING = 32, MOST_COLUMNS = 200, MOST_ROOMS = 8 };

static uint64_t state;

static uint64_t drawn(uint64_t below) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (state * 2685821657736338717u >> 33) % below;
}

static struct {
    uint8_t *at;
    size_t bytes;
} rooms[MOST_ROOMS];
static int num_rooms;

/* It begins behind such a page, or ends before one. */
static void *room(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page - 1) / page * page;
    uint8_t *at = mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, inside, PROT_READ | PROT_WRITE)) exit(2);
    rooms[num_rooms].at = at, rooms[num_rooms++].bytes = inside + 2 * page;
    return at + page + (drawn(2) ? inside - bytes : 0);
}

static void leave_rooms(void) {
    while (num_rooms > 0) num_rooms--, munmap(rooms[num_rooms].at, rooms[num_rooms].bytes);
}

/* Few or many coefficients, from a corner or from anywhere, small or as large as 16 bits let them. */
static uint64_t draw_block(int16_t *block) {
    uint64_t mask = 0, rows = 1 + drawn(8), columns = 1 + drawn(8), one_in = 1 + drawn(drawn(4) ? 40 : 3);
    int bits = 1 + (int)drawn(drawn(3) ? 8 : 16);
    memset(block, 0, 64 * sizeof *block);
    for (int k = 0; k < 64; k++) {
        uint8_t n = NATURAL[k];
        if (k && (n / 8u >= rows || n % 8u >= columns || drawn(one_in))) continue;
        block[n] = (int16_t)((int32_t)drawn((uint64_t)1 << bits) - (1 << (bits - 1)));
        if (block[n]) mask |= (uint64_t)1 << k;
    }
    return mask;
}

static int check_idct(void) {
    size_t count = 1 + drawn(drawn(8) ? 12 : 300), size = (size_t)1 << drawn(4);
    ptrdiff_t stride = (ptrdiff_t)(count * size + drawn(3));
    size_t bytes = size * stride;
    int16_t *coefs = room(count * 64 * sizeof *coefs);
    uint64_t *masks = room(count * sizeof *masks), highest = drawn(3) ? 64 : 1 << 16;
    uint8_t *found = room(bytes), *wanted = room(bytes);
    Quantiser quantiser;
    for (int i = 0; i < 64; i++) quantiser.q[i] = (uint16_t)(1 + drawn(highest - 1));
    for (size_t i = 0; i < count; i++) masks[i] = draw_block(coefs + 64 * i);
    memset(found, 1, bytes), memset(wanted, 1, bytes);
    idct_row(coefs, masks, count, &quantiser, (int)size, found, stride);
    idct_row_plain(coefs, masks, count, &quantiser, (int)size, wanted, stride);
    int is_other = memcmp(found, wanted, bytes) != 0;
    if (is_other) fprintf(stderr, "IDCT of %zu blocks at size %zu differs\n", count, size);
    leave_rooms();
    return is_other;
}

static int check_colours(void) {
    size_t columns = 1 + drawn(MOST_COLUMNS), x0 = drawn(columns), x1 = x0 + drawn(columns - x0 + 1);
    size_t bytes = 1 + columns + PADDING, out_bytes = 3 * (x1 - x0);
    int mode = (int)drawn(H2V2 + 1);
    uint8_t *samples[5], *found = room(out_bytes + 1), *wanted = room(out_bytes + 1);
    for (int i = 0; i < 5; i++) {
        samples[i] = room(bytes);
        for (size_t x = 0; x < bytes; x++) samples[i][x] = (uint8_t)(drawn(4) ? drawn(256) : 255 * drawn(2));
    }
    for (int i = 1; i < 5; i++) repeat_edges(samples[i] + 1, (columns + 1) / 2);
    Row row = {samples[0] + 1, {samples[1] + 1, samples[2] + 1}, {samples[3] + 1, samples[4] + 1}};
    memset(found, 1, out_bytes + 1), memset(wanted, 1, out_bytes + 1);
    colour_row(&row, mode, x0, x1, found);
    colour_row_plain(&row, mode, x0, x1, wanted);
    int is_other = memcmp(found, wanted, out_bytes + 1) != 0;
    if (is_other) fprintf(stderr, "columns %zu to %zu of mode %d differ\n", x0, x1, mode);
    leave_rooms();
    return is_other;
}

/* All three samples of a pixel, exhaustively: 2^24. */
static int check_every_colour(void) {
    uint8_t y[256 + PADDING], cb[256 + PADDING], cr[256 + PADDING], found[768], wanted[768];
    Row row = {y, {cb, cb}, {cr, cr}};
    for (int i = 0; i < 256 + PADDING; i++) y[i] = (uint8_t)i;
    for (int i = 0; i < 1 << 16; i++) {
        memset(cb, i & 255, sizeof cb), memset(cr, i >> 8, sizeof cr);
        colour_row(&row, FULL, 0, 256, found), colour_row_plain(&row, FULL, 0, 256, wanted);
        if (memcmp(found, wanted, sizeof found)) return fprintf(stderr, "chroma %d %d differs\n", i & 255, i >> 8);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    state = 1 + 2 * strtoull(argv[2], NULL, 10);
    for (long i = strtol(argv[1], NULL, 10); i > 0; i--)
        if (check_idct() || check_colours()) return 1;
    puts(pcr_decoder_paths());
    return check_every_colour() != 0;
}
