/* Reads files from standard input, each behind its length, and decodes all and a part of each, at every size: how many
 * it could, and not. */
#include <stdio.h>

#include "decoder.c"

static int decoded(const Piece *piece, const int32_t *frame, int denominator, int part) {
    int height = (frame[0] + denominator - 1) / denominator, width = (frame[1] + denominator - 1) / denominator;
    int top = part ? height / 3 : 0, left = part ? width / 3 : 0;
    int rows = part ? (height + 2) / 3 : height, columns = part ? (width + 2) / 3 : width;
    uint8_t *pixels = malloc((size_t)rows * (size_t)columns * 3); /* exactly: a byte more would be found */
    if (!pixels) exit(2);
    int status = pcr_decoder_decode(piece, 1, denominator, top, left, rows, columns, pixels, 3 * (ptrdiff_t)columns);
    free(pixels);
    return status;
}

int main(void) {
    uint32_t size;
    int counts[2] = {0, 0};
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        uint8_t *jpeg = malloc(size ? size : 1);
        if (!jpeg || fread(jpeg, 1, size, stdin) != size) return 2;
        int32_t frame[14];
        Piece piece = {jpeg, size};
        int status = pcr_decoder_frame(&piece, 1, frame);
        if (status == OK && (int64_t)frame[0] * frame[1] < 1 << 20) {
            for (int d = 8; d >= 1; d /= 2) {
                decoded(&piece, frame, d, 1);
                status = decoded(&piece, frame, d, 0);
            }
        }
        counts[status != OK]++;
        free(jpeg);
    }
    printf("%d %d\n", counts[0], counts[1]);
    return 0;
}
