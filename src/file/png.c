/* png.c -- write pictures as .png (RFC 2083): eight bits of red, green and blue a
 * pixel, rows as they are, one chunk of data. */
#include <string.h>

#include "file/format.h"

enum { MAX_SIDE = 65535, HEADER = 13, AROUND = 12 }; /* AROUND: a chunk's own bytes */

static const uint8_t signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t crc(const uint8_t *data, size_t n)
{
    uint32_t table[256], c = UINT32_MAX;

    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xedb88320) : 0);
    }
    for (size_t i = 0; i < n; i++)
        c = c >> 8 ^ table[(c ^ data[i]) & 255];
    return ~c;
}

/* Around n bytes that lie at `at` + 8 already; the result is the end of the chunk. */
static uint8_t *chunk(uint8_t *at, const char *type, size_t n)
{
    put_u32(at, (uint32_t)n);
    memcpy(at + 4, type, 4);
    put_u32(at + 8 + n, crc(at + 4, n + 4));
    return at + AROUND + n;
}

/* The whole file of rows[n], each behind the byte that names its filter, to `out`. */
static size_t assemble(const uint8_t *rows, size_t n, int64_t width, int64_t height,
                       int64_t *heads, uint8_t *out)
{
    static const uint8_t kind[5] = { 8, 2 }; /* eight bits, colours; no interlacing */
    uint8_t             *at = out;

    memcpy(at, signature, sizeof signature);
    at += sizeof signature;
    put_u32(at + 8, (uint32_t)width);
    put_u32(at + 12, (uint32_t)height);
    memcpy(at + 16, kind, sizeof kind);
    at = chunk(at, "IHDR", HEADER);
    at = chunk(at, "IDAT", deflate_pack(rows, n, n / (size_t)height, heads, at + 8));
    at = chunk(at, "IEND", 0);
    return (size_t)(at - out);
}

foci_status foci_png_write(foci_ctx *ctx, const char *path, int64_t width,
                           int64_t height, const uint8_t *rgb)
{
    if (!path || !rgb || width < 1 || width > MAX_SIDE || height < 1 ||
        height > MAX_SIDE)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "%.200s: a picture of %lld x %lld pixels; a name, data and 1 to "
            "%d of each are needed",
            path ? path : "", (long long)width, (long long)height, MAX_SIDE);

    const size_t row = 3 * (size_t)width + 1, n = row * (size_t)height;
    const size_t room =
        sizeof signature + HEADER + 3 * (size_t)AROUND + deflate_room(n);
    if (room > INT32_MAX)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "%.200s: a picture of %lld x %lld pixels; one chunk holds no more "
            "than 2 GiB",
            path, (long long)width, (long long)height);

    uint8_t    *rows = ctx_alloc(ctx, n, 1), *file = ctx_alloc(ctx, room, 1);
    int64_t    *heads = ctx_alloc(ctx, DEFLATE_HEADS, sizeof *heads);
    foci_status status = FOCI_ERR_MEMORY;

    if (rows && file && heads) {
        for (int64_t y = 0; y < height; y++)
            memcpy(rows + (size_t)y * row + 1, rgb + (size_t)y * (row - 1), row - 1);
        status = foci_file_write(ctx, path, file,
                                 assemble(rows, n, width, height, heads, file));
    }
    ctx_free(ctx, heads, DEFLATE_HEADS, sizeof *heads);
    ctx_free(ctx, file, room, 1);
    ctx_free(ctx, rows, n, 1);
    return status;
}
