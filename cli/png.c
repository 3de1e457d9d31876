/* png.c -- pictures as .png (RFC 2083): eight bits of red, green and blue a pixel, no
 * filter, one chunk of data, compressed by zlib. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cli/picture.h"

enum {
    HEADER = 13,
    AROUND = 12
}; /* bytes of an IHDR, and around the data of a chunk */

static const uint8_t signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Completes a chunk whose n bytes of data lie at `at` + 8; returns its end. */
static uint8_t *chunk(uint8_t *at, const char *type, size_t n)
{
    put_u32(at, (uint32_t)n);
    memcpy(at + 4, type, 4);
    put_u32(at + 8 + n, (uint32_t)crc32(0, at + 4, (uInt)(n + 4)));
    return at + AROUND + n;
}

static uint8_t *header(uint8_t *at, int64_t width, int64_t height)
{
    static const uint8_t kind[5] = { 8, 2 }; /* eight bits, colours; no interlacing */

    memcpy(at, signature, sizeof signature);
    at += sizeof signature;
    put_u32(at + 8, (uint32_t)width);
    put_u32(at + 12, (uint32_t)height);
    memcpy(at + 16, kind, sizeof kind);
    return chunk(at, "IHDR", HEADER);
}

/* zlib's own memory comes from need(), as the command's does. */
static void *zlib_alloc(void *unused, uInt n, uInt size)
{
    (void)unused;
    return need(n, size);
}

static void zlib_free(void *unused, void *memory)
{
    (void)unused;
    free(memory);
}

/* A zlib stream of in[n] to out, which has room for `room` bytes; returns its length. */
static size_t compress_rows(const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
    z_stream z = { .zalloc = zlib_alloc, .zfree = zlib_free };

    if (deflateInit(&z, Z_DEFAULT_COMPRESSION) != Z_OK) return 0;
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    const int end = deflate(&z, Z_FINISH);
    deflateEnd(&z);
    return end == Z_STREAM_END ? z.total_out : 0;
}

uint8_t *png_bytes(int64_t width, int64_t height, const uint8_t *rgb, size_t *bytes)
{
    assert(width > 0 && height > 0 && height <= INT32_MAX / (3 * width + 1));
    const size_t row = 3 * (size_t)width + 1, n = row * (size_t)height;
    const size_t room = (size_t)compressBound((uLong)n);
    uint8_t     *rows = need(n, 1);
    uint8_t     *file = need(sizeof signature + HEADER + 3 * (size_t)AROUND + room, 1);

    for (int64_t y = 0; y < height; y++) {
        rows[(size_t)y * row] = 0; /* no filter */
        memcpy(rows + (size_t)y * row + 1, rgb + (size_t)y * (row - 1), row - 1);
    }
    uint8_t *at = header(file, width, height);
    at = chunk(at, "IDAT", compress_rows(rows, n, at + 8, room));
    at = chunk(at, "IEND", 0);
    *bytes = (size_t)(at - file);
    free(rows);
    return file;
}
