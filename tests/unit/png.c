/* png.c -- pictures: what is written can be read back, by the rules of the format and
 * not by ours. */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foci/file.h"

static char path[64];

static int make(void **state)
{
    snprintf(path, sizeof path, "/tmp/foci-png-XXXXXX");
    const int fd = mkstemp(path);
    if (fd < 0 || close(fd)) return -1;
    return foci_ctx_create(NULL, (foci_ctx **)state);
}

static int release(void **state)
{
    foci_ctx_free(*state);
    return unlink(path);
}

struct bytes {
    uint8_t *data;
    size_t   n;
};

static struct bytes read_file(void)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    struct bytes b = { .n = (size_t)ftell(f) };
    rewind(f);
    b.data = malloc(b.n);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Bit by bit, as the polynomial is defined. */
static uint32_t crc(const uint8_t *p, size_t n)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < 8 * n; i++) {
        const uint32_t bit = (c ^ (uint32_t)(p[i / 8] >> i % 8)) & 1;
        c = c >> 1 ^ (bit ? UINT32_C(0xedb88320) : 0);
    }
    return ~c;
}

/* The data of a chunk; *at goes on to the next. */
static struct bytes chunk(struct bytes file, size_t *at, const char *type)
{
    assert_true(file.n - *at >= 12);
    const struct bytes b = { file.data + *at + 8, u32(file.data + *at) };
    assert_true(b.n <= file.n - *at - 12);
    assert_memory_equal(file.data + *at + 4, type, 4);
    assert_int_equal(u32(b.data + b.n), crc(b.data - 4, b.n + 4));
    *at += 12 + b.n;
    return b;
}

struct stream {
    struct bytes in;
    size_t       bit;
};

static unsigned take(struct stream *s, int count)
{
    unsigned value = 0;
    for (int i = 0; i < count; i++, s->bit++) {
        assert_true(s->bit < 8 * s->in.n);
        value |= (unsigned)(s->in.data[s->bit / 8] >> s->bit % 8 & 1) << i;
    }
    return value;
}

/* A code comes with its highest bit first; those of seven bits are the smallest. */
static unsigned symbol(struct stream *s)
{
    unsigned code = 0;
    for (int i = 0; i < 7; i++)
        code = code << 1 | take(s, 1);
    if (code < 24) return 256 + code;
    code = code << 1 | take(s, 1);
    if (code < 0xc0) return code - 0x30;
    if (code < 0xc8) return 280 + code - 0xc0;
    return 144 + (code << 1 | take(s, 1)) - 0x190;
}

/* Both kinds of lengths double with every few codes. */
static size_t value(struct stream *s, unsigned code, unsigned group, unsigned least)
{
    const unsigned extra = code < 2 * group ? 0 : code / group - 1;
    unsigned       base = code;
    if (extra) base = (group + code % group) << extra;
    return base + least + take(s, (int)extra);
}

/* Bytes of a zlib stream of one block with fixed codes, which are all that we write. */
static void unpack(struct bytes in, uint8_t *out, size_t n)
{
    struct stream s = { in, 16 };
    uint32_t      low = 1, high = 0;
    size_t        at = 0;

    assert_int_equal((in.data[0] << 8 | in.data[1]) % 31, 0);
    assert_int_equal(in.data[0], 0x78);
    assert_int_equal(in.data[1] & 0x20, 0);
    assert_int_equal(take(&s, 3), 3);
    for (unsigned code; (code = symbol(&s)) != 256;) {
        if (code < 256) {
            assert_true(at < n);
            out[at++] = (uint8_t)code;
            continue;
        }
        const size_t length = code == 285 ? 258 : value(&s, code - 257, 4, 3);
        unsigned     far = 0;
        for (int i = 0; i < 5; i++)
            far = far << 1 | take(&s, 1);
        const size_t distance = value(&s, far, 2, 1);
        assert_true(distance <= at && length <= n - at);
        for (size_t i = 0; i < length; i++, at++)
            out[at] = out[at - distance];
    }
    assert_int_equal(at, n);
    for (size_t i = 0; i < n; i++) {
        low = (low + out[i]) % 65521;
        high = (high + low) % 65521;
    }
    const size_t end = (s.bit + 7) / 8;
    assert_int_equal(end + 4, in.n);
    assert_int_equal(u32(in.data + end), high << 16 | low);
}

/* Write, read, compare; the result is the size of the file. */
static size_t round_trip(foci_ctx *ctx, int64_t width, int64_t height,
                         const uint8_t *rgb)
{
    static const uint8_t kind[] = { 8, 2, 0, 0, 0 };
    const size_t         row = 3 * (size_t)width, n = (row + 1) * (size_t)height;
    size_t               at = 8;

    assert_int_equal(foci_png_write(ctx, path, width, height, rgb), FOCI_OK);
    const struct bytes file = read_file();
    assert_memory_equal(file.data, "\x89PNG\r\n\x1a\n", 8);
    const struct bytes head = chunk(file, &at, "IHDR");
    assert_int_equal(head.n, 13);
    assert_int_equal(u32(head.data), width);
    assert_int_equal(u32(head.data + 4), height);
    assert_memory_equal(head.data + 8, kind, sizeof kind);
    const struct bytes data = chunk(file, &at, "IDAT");
    assert_int_equal(chunk(file, &at, "IEND").n, 0);
    assert_int_equal(at, file.n);

    uint8_t *rows = malloc(n);
    assert_non_null(rows);
    unpack(data, rows, n);
    for (int64_t y = 0; y < height; y++) {
        assert_int_equal(rows[(row + 1) * (size_t)y], 0);
        assert_memory_equal(rows + (row + 1) * (size_t)y + 1, rgb + row * (size_t)y,
                            row);
    }
    free(rows);
    free(file.data);
    return file.n;
}

static uint32_t noise(uint32_t *x)
{
    *x = *x * 1664525 + 1013904223;
    return *x >> 16;
}

/* Every byte, matches of every length and distance, none at all. */
static void pictures(void **state)
{
    enum { MOST = 70 * 1024 };
    static const int64_t sizes[][2] = { { 1, 1 },    { 1, 9 },    { 3, 1 },
                                        { 85, 1 },   { 86, 2 },   { 87, 3 },
                                        { 20, 20 },  { 300, 70 }, { 11000, 2 },
                                        { 1, 20000 } };
    uint8_t             *rgb = malloc(MOST);
    uint32_t             x = 1;

    assert_non_null(rgb);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t width = sizes[s][0], height = sizes[s][1];
        assert_true(3 * width * height <= MOST);
        for (uint32_t run = 1; run < 2000; run = 3 * run + 1) {
            uint32_t byte = 0;
            for (int64_t i = 0; i < 3 * width * height; i++) {
                if (noise(&x) % run == 0) byte = noise(&x);
                rgb[i] = (uint8_t)byte;
            }
            round_trip(*state, width, height, rgb);
        }
        memset(rgb, 255, (size_t)(3 * width * height));
        const size_t bytes = round_trip(*state, width, height, rgb);
        assert_true(bytes <= (size_t)(100 + 3 * width * height / 50));
    }
    free(rgb);
}

static void refusals(void **state)
{
    static const uint8_t rgb[3];
    static const struct {
        int64_t width, height;
    } sizes[] = { { 0, 1 },     { 1, 0 },         { -1, 1 },
                  { 65536, 1 }, { 1, INT64_MAX }, { 65535, 65535 } };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(
            foci_png_write(*state, path, sizes[i].width, sizes[i].height, rgb),
            FOCI_ERR_ARG);
        assert_non_null(strstr(foci_errmsg(*state), "pixels"));
    }
    assert_int_equal(foci_png_write(*state, path, 1, 1, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_png_write(*state, NULL, 1, 1, rgb), FOCI_ERR_ARG);
    assert_int_equal(foci_png_write(*state, "/no/such/place.png", 1, 1, rgb),
                     FOCI_ERR_FILE);
    assert_int_equal(foci_file_write(*state, NULL, rgb, 3), FOCI_ERR_ARG);
    assert_int_equal(foci_file_write(*state, path, NULL, 3), FOCI_ERR_ARG);
}

static void plain_bytes(void **state)
{
    assert_int_equal(foci_file_write(*state, path, "a\0b", 3), FOCI_OK);
    struct bytes b = read_file();
    assert_int_equal(b.n, 3);
    assert_memory_equal(b.data, "a\0b", 3);
    free(b.data);
    assert_int_equal(foci_file_write(*state, path, NULL, 0), FOCI_OK);
    b = read_file();
    assert_int_equal(b.n, 0);
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pictures, make, release),
        cmocka_unit_test_setup_teardown(refusals, make, release),
        cmocka_unit_test_setup_teardown(plain_bytes, make, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
