/* Loads the libraries that a wheel holds, decodes JPEGs from standard input, each behind its length, at every size, and
 * prints the path that is taken and a checksum of each. Arguments: the libraries of decoder.c and of many_reads.c. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Piece;

static void *found(void *library, const char *name) {
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) fprintf(stderr, "%s: %s\n", name, dlerror()), exit(2);
    return function;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void *library = dlopen(argv[1], RTLD_NOW), *reads = dlopen(argv[2], RTLD_NOW);
    const char *(*paths)(void) = (const char *(*)(void))found(library, "pcr_decoder_paths");
    int (*frame_of)(const Piece *, size_t, int32_t *) =
        (int (*)(const Piece *, size_t, int32_t *))found(library, "pcr_decoder_frame");
    int (*decode)(const Piece *, size_t, int, int, int, int, int, uint8_t *, ptrdiff_t, const int8_t *) =
        (int (*)(const Piece *, size_t, int, int, int, int, int, uint8_t *, ptrdiff_t, const int8_t *))found(
            library, "pcr_decoder_decode");
    found(reads, "pcr_many_reads_version");
    printf("%s\n", paths());
    for (uint32_t size; fread(&size, sizeof size, 1, stdin) == 1;) {
        uint8_t *bytes = malloc(size);
        int32_t frame[14];
        Piece piece = {bytes, size};
        if (!bytes || fread(bytes, 1, size, stdin) != size || frame_of(&piece, 1, frame)) return 2;
        for (int d = 1; d <= 8; d *= 2) {
            int height = (frame[0] + d - 1) / d, width = (frame[1] + d - 1) / d;
            size_t count = 3 * (size_t)height * (size_t)width;
            uint8_t *pixels = malloc(count);
            uint64_t hash = 14695981039346656037u; /* FNV-1a */
            if (!pixels || decode(&piece, 1, d, 0, 0, height, width, pixels, 3 * (ptrdiff_t)width, NULL)) return 2;
            for (size_t i = 0; i < count; i++) hash = (hash ^ pixels[i]) * 1099511628211u;
            printf("%016llx\n", (unsigned long long)hash);
            free(pixels);
        }
        free(bytes);
    }
    return 0;
}
