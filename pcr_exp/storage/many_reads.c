/* Reads ranges of several files in one call, during which no thread waits for the interpreter.
 *
 * A read from Python is five system calls of about a microsecond each. After each of them, the thread queues for the
 * GIL with all other reading threads: dozens of them, if small reads have to hide latency. Here they are one call.
 *
 * Plain C99 and POSIX, without Python's C API. Called through ctypes, which releases the GIL meanwhile.
 */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int32_t pcr_many_reads_version(void) { return 2; }

/* Returns the number of bytes read from `offset` on (fewer at the end of the file), or -errno. */
static int64_t read_range(const char *path, int64_t offset, int64_t length, char *out) {
    int file;
    do {
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (file < 0 && errno == EINTR);
    if (file < 0) return -errno;
    /* A FIFO would block for ever, and a device might never end. */
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        (void)close(file);
        return -EINVAL;
    }
#if defined(POSIX_FADV_RANDOM)
    /* As in LocalStorage.read: bytes beyond a prefix are not needed. */
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
#endif
    int64_t received = 0;
    while (received < length) {
        const ssize_t part = pread(file, out + received, (size_t)(length - received), (off_t)(offset + received));
        if (part > 0) {
            received += part;
        } else if (part == 0) {
            break;
        } else if (errno != EINTR) {
            received = -errno;
            break;
        }
    }
    (void)close(file);
    return received;
}

/* Reads bytes [offsets[i], offsets[i] + lengths[i]) of each of `count` files. `out` has room for lengths[i] bytes of
 * each range, one range after the other. `received[i]` is the number of bytes read, or -errno.
 */
EXPORTED void pcr_many_reads(int32_t count, const char *const *paths, const int64_t *offsets, const int64_t *lengths,
                             char *out, int64_t *received) {
    for (int32_t i = 0; i < count; i++) {
        received[i] = read_range(paths[i], offsets[i], lengths[i], out);
        out += lengths[i];
    }
}
