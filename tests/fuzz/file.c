/* file.c -- any bytes may be in a file; it is refused, or its arrays can be read. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "foci/file.h"

enum { LARGEST = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const foci_file *file)
{
    for (int i = 0; i < foci_file_count(file); i++) {
        foci_array array = { FOCI_SIZED(foci_array) };
        if (foci_file_array(file, i, &array) != FOCI_OK) abort();
        if (array.count > LARGEST) abort(); /* no input is that long */
        float   *f32 = malloc(((size_t)array.count + 1) * sizeof *f32);
        int32_t *i32 = malloc(((size_t)array.count + 1) * sizeof *i32);
        if (!f32 || !i32) abort();
        foci_array_to_f32(&array, f32);
        (void)foci_array_to_i32(&array, i32);
        free(f32);
        free(i32);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > LARGEST) return 0;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);

    foci_ctx  *ctx;
    foci_file *file;
    if (foci_ctx_create(NULL, &ctx) != FOCI_OK) abort();
    if (foci_file_open(ctx, path, &file) == FOCI_OK) {
        read_all(file);
        foci_file_free(file);
    }
    foci_ctx_free(ctx);
    close(fd);
    return 0;
}
