/* Reads files from standard input, each behind its length, and decodes all of each: how many it could, and not. */
#include <stdio.h>

#include "first_scans.c"

int main(void) {
    uint32_t size;
    int counts[2] = {0, 0};
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        uint8_t *jpeg = malloc(size ? size : 1); /* exactly as large as the file: a byte more would be found */
        if (!jpeg || fread(jpeg, 1, size, stdin) != size) return 2;
        int32_t frame[3];
        int status = pcr_first_scans_frame(jpeg, size, frame);
        if (status == OK && (int64_t)frame[0] * frame[1] < 1 << 24) {
            status = UNSUPPORTED;
            for (int d = 2; d <= 8 && status == UNSUPPORTED; d *= 4) { /* one of both is right for a file */
                int rows = (frame[0] + d - 1) / d, columns = (frame[1] + d - 1) / d;
                uint8_t *pixels = malloc((size_t)rows * columns * 3);
                if (!pixels) return 2;
                status = pcr_first_scans_decode(jpeg, size, d, 0, 0, rows, columns, pixels);
                free(pixels);
            }
        }
        counts[status != OK]++;
        free(jpeg);
    }
    printf("%d %d\n", counts[0], counts[1]);
    return 0;
}
