/* The pixel half of the decoder as a library for tests: whole images from coefficients, along any path. */
#include "decoder.c"

typedef struct {
    const int16_t *coefs; /* [rows, columns, 64] of blocks, whole MCUs */
    const uint64_t *masks;
    Quantiser quantiser;
    int h, v, size;
    size_t columns, rows, width, height; /* of blocks; of samples that count (downsampled_width) */
    uint8_t *samples;
    ptrdiff_t stride;
} Coefficients;

static size_t divided_up(size_t a, size_t b) { return (a + b - 1) / b; }

static const uint8_t *row_of(const Coefficients *plane, ptrdiff_t y) {
    ptrdiff_t last = (ptrdiff_t)plane->height - 1;
    return plane->samples + plane->stride * (y < 0 ? 0 : y > last ? last : y);
}

/* planes: [num_planes]; `out`: RGB [rows, columns, 3] of the image at `size` eighths. 0: done. */
int show(Coefficients *planes, int num_planes, size_t width, size_t height, int size, const size_t rectangle[4],
         uint8_t *out) {
    int max_h = planes[0].h, max_v = planes[0].v;
    for (int i = 0; i < num_planes; i++) {
        Coefficients *plane = &planes[i];
        plane->size = size;
        while (plane->size < 8 && max_h * size % (plane->h * plane->size * 2) == 0 &&
               max_v * size % (plane->v * plane->size * 2) == 0)
            plane->size *= 2;
        plane->width = divided_up(width * plane->h * plane->size, 8 * max_h);
        plane->height = divided_up(height * plane->v * plane->size, 8 * max_v);
        plane->stride = (ptrdiff_t)(plane->columns * plane->size + 2);
        uint8_t *room = malloc(plane->stride * plane->rows * plane->size + 1 + PADDING_BYTES);
        if (!room) return 1;
        plane->samples = room + 1;
        for (size_t y = 0; y < plane->rows; y++)
            idct_row(plane->coefs + y * plane->columns * 64, plane->masks + y * plane->columns, plane->columns,
                     &plane->quantiser, plane->size, plane->samples + plane->stride * y * plane->size, plane->stride);
    }
    const Coefficients *chroma = &planes[1];
    int x_step = 1, y_step = 1, mode = GREY, is_fancy = size > 1;
    if (num_planes == 3) {
        x_step = max_h * size / (chroma->h * chroma->size), y_step = max_v * size / (chroma->v * chroma->size);
        mode = x_step == 1 ? FULL : is_fancy && chroma->width > 2 ? (y_step == 2 ? H2V2 : H2V1) : H2_REPEATED;
        for (int i = 1; i < 3 && x_step == 2; i++)
            for (size_t y = 0; y < chroma->height; y++)
                repeat_edges(planes[i].samples + planes[i].stride * y, planes[i].width);
    }
    for (size_t y = rectangle[0]; y < rectangle[2]; y++) {
        Row row = {row_of(&planes[0], y), {0}, {0}};
        int is_lower = y_step == 2 && y % 2;
        ptrdiff_t near = y / y_step, far = is_lower ? near + 1 : near - 1;
        if (num_planes == 3) {
            row.cb[0] = row_of(&planes[1], near), row.cb[1] = row_of(&planes[1], far);
            row.cr[0] = row_of(&planes[2], near), row.cr[1] = row_of(&planes[2], far);
        }
        int of_row = mode == FULL && y_step == 2 && is_fancy ? (is_lower ? H1V2_BELOW : H1V2_ABOVE) : mode;
        colour_row(&row, of_row, rectangle[1], rectangle[3], out);
        out += 3 * (rectangle[3] - rectangle[1]);
    }
    for (int i = 0; i < num_planes; i++) free(planes[i].samples - 1);
    return 0;
}
