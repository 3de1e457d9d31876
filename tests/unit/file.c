/* file.c -- .npy and .safetensors: every variant is read, every damaged file is
 * refused with a reason or read as what it then says, and writers leave either the
 * old file or the new one. */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foci/file.h"

struct fixture {
    foci_ctx *ctx;
    char      dir[64];
    char      path[128];
};

struct bytes {
    unsigned char data[2048];
    size_t        n;
};

static void put(struct bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof b->data);
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_length(struct bytes *b, uint64_t length, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)(length >> (8 * i));
        put(b, &c, 1);
    }
}

static struct bytes npy(int version, const char *header, const void *data, size_t n)
{
    struct bytes        b = { .n = 0 };
    const unsigned char v[2] = { (unsigned char)version, 0 };

    put(&b, "\x93NUMPY", 6);
    put(&b, v, 2);
    put_length(&b, strlen(header), version == 1 ? 2 : 4);
    put(&b, header, strlen(header));
    put(&b, data, n);
    return b;
}

static struct bytes safetensors(const char *header, const void *data, size_t n)
{
    struct bytes b = { .n = 0 };

    put_length(&b, strlen(header), 8);
    put(&b, header, strlen(header));
    put(&b, data, n);
    return b;
}

static void save(const char *path, const struct bytes *b)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

/* Save, open and give the only array. */
static foci_file *open_one(struct fixture *x, const struct bytes *b, foci_array *a)
{
    foci_file *file;

    save(x->path, b);
    if (foci_file_open(x->ctx, x->path, &file)) fail_msg("%s", foci_errmsg(x->ctx));
    assert_int_equal(foci_file_count(file), 1);
    *a = (foci_array){ FOCI_SIZED(foci_array) };
    assert_int_equal(foci_file_array(file, 0, a), FOCI_OK);
    return file;
}

static void expect_refused(struct fixture *x, const struct bytes *b, const char *reason)
{
    foci_file *file = (foci_file *)x;

    save(x->path, b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_ERR_FILE);
    assert_null(file);
    const char *message = foci_errmsg(x->ctx);
    if (strncmp(message, x->path, strlen(x->path)) != 0 || !strstr(message, reason) ||
        strchr(message, '\n'))
        fail_msg("\"%s\" should be one line that names the file and \"%s\"", message,
                 reason);
}

/*
 * Reading .npy
 */

/* The same three numbers in every type. */
static void reads_types(void **state)
{
    static const struct {
        const char *code;
        int         bytes;
        uint64_t    bits[3];
        float       values[3];
    } types[] = {
        { "b1", 1, { 0, 1, 1 }, { 0, 1, 1 } },
        { "i1", 1, { 0, 0x80, 0x7f }, { 0, -128, 127 } },
        { "u1", 1, { 0, 0x80, 0xff }, { 0, 128, 255 } },
        { "i2", 2, { 1, 0x8000, 0x0102 }, { 1, -32768, 258 } },
        { "u2", 2, { 1, 0x8000, 0x0102 }, { 1, 32768, 258 } },
        { "i4", 4, { 1, 0xfffffffe, 0x10000 }, { 1, -2, 65536 } },
        { "u4", 4, { 1, 0xfffffffe, 0x10000 }, { 1, 4294967294.0f, 65536 } },
        { "i8", 8, { 1, UINT64_MAX, 0x10000 }, { 1, -1, 65536 } },
        { "u8", 8, { 1, UINT64_MAX, 0x10000 }, { 1, 18446744073709551616.0f, 65536 } },
        { "f2", 2, { 0x3c00, 0xfbff, 0x0001 }, { 1, -65504, 0x1p-24f } },
        { "f4", 4, { 0x3f800000, 0xc0490fdb, 1 }, { 1, -3.14159274f, 0x1p-149f } },
        { "f8",
          8,
          { 0x3ff0000000000000, 0xc00921fb54442d18, 1 },
          { 1, -3.14159274f, 0 } },
    };
    struct fixture *x = *state;

    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int big = 0; big < 2; big++) {
            unsigned char data[24];
            char          header[128];
            foci_array    a;
            float         out[3];
            const int     n = types[t].bytes;

            for (int i = 0; i < 3; i++)
                for (int k = 0; k < n; k++)
                    data[i * n + (big ? n - 1 - k : k)] =
                        (unsigned char)(types[t].bits[i] >> (8 * k));
            snprintf(header, sizeof header,
                     "{'descr': '%c%s', 'fortran_order': False, 'shape': (3,), }\n",
                     big ? '>' : '<', types[t].code);
            const struct bytes b = npy(1 + (int)(t % 3), header, data, 3 * (size_t)n);
            foci_file         *file = open_one(x, &b, &a);
            foci_array_to_f32(&a, out);
            for (int i = 0; i < 3; i++)
                if (out[i] != types[t].values[i])
                    fail_msg("%s %s: value %d is %g, not %g", types[t].code,
                             big ? "big" : "little", i, (double)out[i],
                             (double)types[t].values[i]);
            foci_file_free(file);
        }
}

static void reads_half_specials(void **state)
{
    static const unsigned char data[] = {
        0x00, 0x7c, 0x00, 0xfc, 0x01, 0x7e, 0x00, 0x80
    };
    struct fixture *x = *state;
    foci_array      a;
    float           out[4];

    const struct bytes b =
        npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (4,)}", data,
            sizeof data);
    foci_file *file = open_one(x, &b, &a);
    foci_array_to_f32(&a, out);
    assert_true(out[0] == INFINITY && out[1] == -INFINITY && isnan(out[2]));
    assert_true(out[3] == 0 && signbit(out[3]));
    foci_file_free(file);
}

static void reads_spellings(void **state)
{
    static const struct {
        const char *header;
        int         n_dims;
        int64_t     shape[3];
        size_t      bytes;
    } cases[] = {
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 0, { 0 }, 4 },
        { "{\"shape\":(2L,3L),\"fortran_order\":False,\"descr\":\"<f4\"}",
          2,
          { 2, 3 },
          24 },
        { "  { 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' , 'fortran_order' : False , } "
          "\t\n",
          2,
          { 2, 3 },
          24 },
        { "{'descr': '=f4', 'fortran_order': True, 'shape': (3,), }", 1, { 3 }, 12 },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", 1, { 0 }, 0 },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 0, 7), }",
          3,
          { 5, 0, 7 },
          0 },
    };
    struct fixture *x = *state;
    const float     data[6] = { 1, 2, 3, 4, 5, 6 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_array         a;
        float              out[6] = { 0 };
        const struct bytes b = npy(1, cases[i].header, data, cases[i].bytes);
        foci_file         *file = open_one(x, &b, &a);
        assert_int_equal(a.n_dims, cases[i].n_dims);
        assert_memory_equal(a.shape, cases[i].shape, (size_t)a.n_dims * sizeof *a.shape);
        assert_int_equal(a.count, cases[i].bytes / 4);
        assert_string_equal(a.name, "");
        foci_array_to_f32(&a, out);
        assert_memory_equal(out, data, cases[i].bytes);
        foci_file_free(file);
    }
}

/* Element (i, j, k) of a 2 x 3 x 300 array is 1000 i + 100000 j + k, so that a row is
 * longer than what is converted at a time. */
static void reads_fortran_order(void **state)
{
    struct fixture *x = *state;
    foci_array      a;
    static float    in[1800], out[1800];
    FILE           *f = fopen(x->path, "wb");
    const char     *header =
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 300), }";

    struct bytes head = npy(1, header, NULL, 0);
    assert_non_null(f);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 300; k++)
                in[i + 2 * (j + 3 * k)] = (float)(1000 * i + 100000 * j + k);
    assert_int_equal(fwrite(head.data, 1, head.n, f), head.n);
    assert_int_equal(fwrite(in, sizeof *in, 1800, f), 1800);
    assert_int_equal(fclose(f), 0);

    foci_file *file;
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    a = (foci_array){ FOCI_SIZED(foci_array) };
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_OK);
    assert_true(a.fortran);
    foci_array_to_f32(&a, out);
    for (int n = 0; n < 1800; n++)
        assert_true(out[n] ==
                    (float)(1000 * (n / 900) + 100000 * (n / 300 % 3) + n % 300));
    foci_file_free(file);
}

static void refuses_npy(void **state)
{
    static const struct {
        const char *header, *reason;
    } cases[] = {
        { "", "dictionary" },
        { "{}", "lacks descr" },
        { "{'descr': '<f4', 'shape': (1,)}", "lacks fortran_order" },
        { "{'descr': '<f4', 'fortran_order': False}", "lacks shape" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "dictionary" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "dictionary" },
        { "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", "dictionary" },
        { "{,'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "dictionary" },
        { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
          "twice" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
          "dictionary" },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "'<c8'" },
        { "{'descr': '|f4', 'fortran_order': False, 'shape': (1,)}", "'|f4'" },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "'|O'" },
        { "{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}", "'f4'" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
          "one type" },
        { "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "True nor False" },
        { "{'descr': '<f4', 'shape': (1,), 'fortran_order': Tr", "True nor False" },
        { "{'descr': '<f\x7f', 'fortran_order': False, 'shape': (1,)}", "one type" },
        { "{'descr': '<f\t4', 'fortran_order': False, 'shape': (1,)}", "one type" },
        { "{'descr': '<f\\4', 'fortran_order': False, 'shape': (1,)}", "one type" },
        { "{'descr': '<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4<f4', 'shape': (1,)}", "one type" },
        { "{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904, 3)}",
          "counted" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", "tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "whole number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}", "tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}", "whole number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "whole number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
          "whole number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
          "8 axes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "needs 8 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", "needs 0 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (50000, 50000)}",
          "needs 10000000000 bytes" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
          "counted" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,)}",
          "counted" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4294967296, "
          "4294967296)}",
          "counted" },
    };
    struct fixture *x = *state;
    const float     one = 1;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b = npy(1, cases[i].header, &one, sizeof one);
        expect_refused(x, &b, cases[i].reason);
    }
    struct bytes b = npy(4, "{}", NULL, 0);
    expect_refused(x, &b, "version 4.0");
    b = npy(2, "{}", NULL, 0);
    memset(b.data + 8, 0xff, 4);
    expect_refused(x, &b, "header takes 4294967295 bytes");
    b = (struct bytes){ .n = 0 };
    expect_refused(x, &b, "empty");
    put(&b, "PK\3\4 not arrays", 15);
    expect_refused(x, &b, "neither .npy");
}

/*
 * Reading .safetensors
 */

static const char two[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[6,14]},"
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[0,6]}}   ";

static const unsigned char two_data[14] = { 0x80, 0x3f, 0x00, 0xc0, 0x80, 0x7f, 0,
                                            0,    0x40, 0x3f, 0,    0,    0,    0x80 };

static void reads_safetensors(void **state)
{
    struct fixture    *x = *state;
    const struct bytes b = safetensors(two, two_data, sizeof two_data);
    foci_array         a = { FOCI_SIZED(foci_array) };
    foci_file         *file;
    float              out[3];

    save(x->path, &b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    assert_int_equal(foci_file_count(file), 2);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_OK);
    assert_string_equal(a.name, "a");
    assert_int_equal(a.type, FOCI_EL_BF16);
    assert_int_equal(a.n_dims, 2);
    foci_array_to_f32(&a, out);
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == INFINITY);
    assert_int_equal(foci_file_array(file, 1, &a), FOCI_OK);
    assert_string_equal(a.name, "b");
    foci_array_to_f32(&a, out);
    assert_true(out[0] == 0.75f && out[1] == 0 && signbit(out[1]));
    assert_int_equal(foci_file_array(file, 2, &a), FOCI_ERR_ARG);
    assert_int_equal(foci_file_array(file, -1, &a), FOCI_ERR_ARG);
    foci_file_free(file);
}

static void reads_empty_safetensors(void **state)
{
    static const struct {
        const char *header;
        int         count;
    } cases[] = {
        { "{}", 0 },
        { "{\"__metadata__\":{}}", 0 },
        { "{\"x\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[0,0]}}", 1 },
        { "{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 1 },
    };
    struct fixture *x = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b = safetensors(cases[i].header, NULL, 0);
        foci_file         *file;
        save(x->path, &b);
        assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
        assert_int_equal(foci_file_count(file), cases[i].count);
        for (int t = 0; t < cases[i].count; t++) {
            foci_array a = { FOCI_SIZED(foci_array) };
            assert_int_equal(foci_file_array(file, t, &a), FOCI_OK);
            assert_int_equal(a.count, 0);
            foci_array_to_f32(&a, NULL);
            assert_int_equal(foci_array_to_i32(&a, NULL), FOCI_OK);
        }
        foci_file_free(file);
    }
}

#define TENSOR(dtype, shape, offsets)                                                  \
    "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void refuses_safetensors(void **state)
{
    static const struct {
        const char *header, *reason;
    } cases[] = {
        { "{", "not JSON" },
        { "{}}", "not JSON" },
        { "{\"x\":1}", "no dtype" },
        { TENSOR("F9", "[1]", "[0,4]"), "is F9" },
        { TENSOR("F32", "1", "[0,4]"), "list of up to 8" },
        { TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "list of up to 8" },
        { TENSOR("F32", "[-1]", "[0,4]"), "whole number" },
        { TENSOR("F32", "[1.0]", "[0,4]"), "whole number" },
        { TENSOR("F32", "[9223372036854775808]", "[0,4]"), "not JSON" },
        { TENSOR("F32", "[9223372036854775807]", "[0,4]"), "counted" },
        { TENSOR("F32", "[2500000000]", "[0,4]"), "needs 10000000000 bytes" },
        { TENSOR("F32", "[1]", "[0,8]"), "[0, 8]" },
        { TENSOR("F32", "[1]", "[4,0]"), "[4, 0]" },
        { TENSOR("F32", "[1]", "[-4,0]"), "[-4, 0]" },
        { TENSOR("F32", "[1]", "[0,9223372036854775807]"), "9223372036854775807" },
        { TENSOR("F32", "[1]", "[0]"), "two whole numbers" },
        { TENSOR("F32", "[1]", "4"), "two whole numbers" },
        { TENSOR("F16", "[1]", "[0,2]"), "take 2 bytes" },
        { TENSOR("F16", "[1]", "[2,4]"), "begins at byte 2" },
        { TENSOR("F16", "[1]", "[0,4]"), "needs 2 bytes" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"a\",4]}}",
          "two whole numbers" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"a\"]}}",
          "two whole numbers" },
        { "{\"__metadata__\":1}", "__metadata__" },
        { "{\"__metadata__\":{\"a\":1}}", "__metadata__" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          "begins at byte 0" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
          "not JSON" },
        { "{\"a\\nb\":{\"dtype\":\"F9\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          "'a?b'" },
    };
    struct fixture *x = *state;
    const float     one = 1;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b = safetensors(cases[i].header, &one, sizeof one);
        expect_refused(x, &b, cases[i].reason);
    }
    struct bytes b = safetensors("{}", NULL, 0);
    memset(b.data, 0xff, 8);
    expect_refused(x, &b, "header takes 18446744073709551615 bytes");
    b = safetensors("{}", NULL, 0);
    b.data[0] = 3;
    expect_refused(x, &b, "header takes 3 bytes");
}

/*
 * Damage
 */

/* Whatever opens must lie in the file and fill it. */
static void check_sound(foci_file *file, size_t file_bytes)
{
    static const size_t  bytes[] = { 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8 };
    const unsigned char *at = NULL;
    size_t               sum = 0;

    for (int i = 0; i < foci_file_count(file); i++) {
        foci_array a = { FOCI_SIZED(foci_array) };
        float      out[64];
        int32_t    ints[64];
        int64_t    product = 1;

        assert_int_equal(foci_file_array(file, i, &a), FOCI_OK);
        for (int d = 0; d < a.n_dims; d++)
            product *= a.shape[d];
        assert_int_equal(a.count, product);
        assert_in_range(a.count, 0, 64);
        if (at) assert_ptr_equal(a.data, at);
        at = (const unsigned char *)a.data + (size_t)a.count * bytes[a.type];
        sum += (size_t)a.count * bytes[a.type];
        foci_array_to_f32(&a, out);
        (void)foci_array_to_i32(&a, ints);
    }
    assert_true(sum < file_bytes);
}

static void open_damaged(struct fixture *x, const struct bytes *b, int *opened)
{
    foci_file        *file;
    const foci_status status =
        (save(x->path, b), foci_file_open(x->ctx, x->path, &file));

    if (status) {
        const char *message = foci_errmsg(x->ctx);
        assert_int_equal(status, FOCI_ERR_FILE);
        assert_null(file);
        assert_int_equal(strncmp(message, x->path, strlen(x->path)), 0);
        assert_true(strlen(message) > strlen(x->path) + 10);
        assert_null(strpbrk(message, "\n\r\t"));
        return;
    }
    ++*opened;
    check_sound(file, b->n);
    foci_file_free(file);
}

static void damage(struct fixture *x, const struct bytes *b, size_t data_bytes)
{
    int opened = 0;

    for (size_t n = 0; n < b->n; n++) {
        struct bytes cut = *b;
        cut.n = n;
        open_damaged(x, &cut, &opened);
    }
    assert_int_equal(opened, 0);

    for (size_t bit = 0; bit < 8 * b->n; bit++) {
        struct bytes flipped = *b;
        flipped.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        open_damaged(x, &flipped, &opened);
    }
    /* Any value is good data, and little else may change unnoticed. */
    assert_in_range(opened, 8 * data_bytes, 8 * data_bytes + 120);
}

static void survives_damaged_npy(void **state)
{
    const float     data[6] = { 1, 2, 3, 4, 5, 6 };
    struct fixture *x = *state;
    struct bytes    b =
        npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", data,
            sizeof data);
    damage(x, &b, sizeof data);
    b = npy(2, "{'descr': '>i2', 'fortran_order': True, 'shape': (3, 4), }\n", data, 24);
    damage(x, &b, 24);
}

static void survives_damaged_safetensors(void **state)
{
    const struct bytes b = safetensors(two, two_data, sizeof two_data);
    damage(*state, &b, sizeof two_data);
}

static void refuses_what_is_no_file(void **state)
{
    struct fixture *x = *state;
    foci_file      *file;

    assert_int_equal(foci_file_open(x->ctx, "/nonexistent/x.npy", &file), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "/nonexistent/x.npy"));
    assert_int_equal(foci_file_open(x->ctx, x->dir, &file), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "directory"));
    assert_int_equal(foci_file_open(x->ctx, "/dev/null", &file), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "not a regular file"));
    assert_int_equal(mkfifo(x->path, 0600), 0);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "not a regular file"));
    foci_file_free(NULL);
}

/* Calls that are wrong whatever the file holds. */
static void refuses_wrong_calls(void **state)
{
    struct fixture    *x = *state;
    const struct bytes b =
        npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "x", 1);
    foci_array a = { .size = sizeof a.size };
    foci_file *file = (foci_file *)x;
    char       path[400];

    assert_int_equal(foci_file_open(NULL, x->path, &file), FOCI_ERR_ARG);
    assert_null(file);
    assert_int_equal(foci_file_open(x->ctx, NULL, &file), FOCI_ERR_ARG);
    assert_int_equal(foci_file_open(x->ctx, x->path, NULL), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(x->ctx), "needs a context, a path and a place"));

    /* Of a long path the end is shown, and there is room for the reason. */
    memset(path, 'x', sizeof path);
    memcpy(path, "/begin/", 7);
    memcpy(path + sizeof path - 5, "/end", 5);
    assert_int_equal(foci_file_open(x->ctx, path, &file), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "x/end: cannot be opened: "));
    assert_null(strstr(foci_errmsg(x->ctx), "begin"));

    save(x->path, &b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(x->ctx), "foci_array.size is 8"));
    assert_int_equal(foci_file_array(file, 1, &a), FOCI_ERR_ARG);
    assert_int_equal(foci_file_array(file, -1, &a), FOCI_ERR_ARG);
    foci_file_free(file);
}

/*
 * Integers
 */

static void converts_whole_numbers_only(void **state)
{
    static const struct {
        double value;
        int    good;
    } cases[] = {
        { 0, 1 },
        { -5, 1 },
        { 2147483647, 1 },
        { -2147483648.0, 1 },
        { 2147483648.0, 0 },
        { -2147483649.0, 0 },
        { 0.5, 0 },
        { (double)NAN, 0 },
        { (double)INFINITY, 0 },
    };
    struct fixture *x = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b =
            npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
                &cases[i].value, 8);
        foci_array a;
        int32_t    out = 77;
        foci_file *file = open_one(x, &b, &a);
        assert_int_equal(foci_array_to_i32(&a, &out),
                         cases[i].good ? FOCI_OK : FOCI_ERR_ARG);
        if (cases[i].good) assert_true(out == cases[i].value);
        foci_file_free(file);
    }
}

/*
 * Memory
 */

struct rationed {
    int left, live;
};

static void *rationed_alloc(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    struct rationed *r = user;
    (void)old_bytes;
    if (!new_bytes) {
        r->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (r->left-- <= 0) return NULL;
    r->live += old == NULL;
    free(old);
    return aligned_alloc(64, (new_bytes + 63) / 64 * 64);
}

static void survives_lack_of_memory(void **state)
{
    struct fixture    *x = *state;
    const struct bytes files[2] = {
        npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "x", 1),
        safetensors(two, two_data, sizeof two_data),
    };

    for (int f = 0; f < 2; f++) {
        save(x->path, &files[f]);
        foci_status status = FOCI_ERR_MEMORY;
        for (int n = 0; status; n++) {
            struct rationed    r = { .left = 1000 };
            const foci_options options = { FOCI_SIZED(foci_options),
                                           .alloc = rationed_alloc, .user = &r };
            foci_ctx          *ctx;
            foci_file         *file;
            assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
            r.left = n;
            status = foci_file_open(ctx, x->path, &file);
            if (status) {
                assert_int_equal(status, FOCI_ERR_MEMORY);
                assert_null(file);
                assert_non_null(strstr(foci_errmsg(ctx), "memory"));
            }
            foci_file_free(file);
            foci_ctx_free(ctx);
            assert_int_equal(r.live, 0);
            assert_in_range(n, 0, 20);
        }
    }
}

/*
 * Writing
 */

static int entries(const char *dir)
{
    DIR *d = opendir(dir);
    int  n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void check_content(struct fixture *x, const char *path, int n_dims,
                          const int64_t *shape, const float *data)
{
    foci_array a = { FOCI_SIZED(foci_array) };
    foci_file *file;
    float      out[64];

    assert_int_equal(foci_file_open(x->ctx, path, &file), FOCI_OK);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_OK);
    assert_int_equal(a.type, FOCI_EL_F32);
    assert_int_equal(a.n_dims, n_dims);
    assert_memory_equal(a.shape, shape, (size_t)n_dims * sizeof *shape);
    foci_array_to_f32(&a, out);
    assert_memory_equal(out, data, (size_t)a.count * sizeof *out);
    foci_file_free(file);
}

static void writes_npy(void **state)
{
    static const struct {
        int     n_dims;
        int64_t shape[8];
    } cases[] = {
        { 0, { 0 } },
        { 1, { 6 } },
        { 2, { 2, 3 } },
        { 2, { 0, 5 } },
        { 8, { 1, 1, 1, 2, 1, 3, 1, 1 } },
        { 8, { 0, 1000000000, 1, 1, 1, 1, 1, 1000000000 } },
    };
    const float     data[6] = { 1, -2, 3.5f, INFINITY, 0x1p-149f, 6 };
    struct fixture *x = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stat st;
        assert_int_equal(
            foci_npy_write(x->ctx, x->path, cases[i].n_dims, cases[i].shape, data),
            FOCI_OK);
        check_content(x, x->path, cases[i].n_dims, cases[i].shape, data);
        assert_int_equal(entries(x->dir), 1);
        assert_int_equal(stat(x->path, &st), 0);
        assert_int_equal(st.st_mode & 0600, 0600);
    }
}

static void writes_safetensors(void **state)
{
    const int64_t    shape[2] = { 2, 2 }, none[1] = { 0 };
    const float      data[4] = { 1, 2, 3, 4 }, number = 5;
    const foci_named arrays[] = {
        { "0.sink", 0, NULL, &number },
        { "quote\" and \xc3\xa9", 2, shape, data },
        { "none", 1, none, NULL },
    };
    struct fixture *x = *state;
    foci_file      *file;
    foci_array      a = { FOCI_SIZED(foci_array) };
    float           out[4];
    int             seen = 0;

    assert_int_equal(foci_safetensors_write(x->ctx, x->path, arrays, 3), FOCI_OK);
    assert_int_equal(entries(x->dir), 1);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    assert_int_equal(foci_file_count(file), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(foci_file_array(file, i, &a), FOCI_OK);
        for (int k = 0; k < 3; k++)
            if (strcmp(a.name, arrays[k].name) == 0) {
                seen |= 1 << k;
                assert_int_equal(a.n_dims, arrays[k].n_dims);
                foci_array_to_f32(&a, out);
                if (a.count)
                    assert_memory_equal(out, arrays[k].data,
                                        (size_t)a.count * sizeof *out);
            }
    }
    assert_int_equal(seen, 7);
    foci_file_free(file);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, NULL, 0), FOCI_OK);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    assert_int_equal(foci_file_count(file), 0);
    foci_file_free(file);
}

static void refuses_to_write_nonsense(void **state)
{
    const int64_t    one[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, negative[1] = { -1 };
    const int64_t    huge[2] = { INT64_C(1) << 40, INT64_C(1) << 40 };
    const float      data[1] = { 1 };
    const foci_named reserved = { "__metadata__", 1, one, data },
                     nameless = { NULL, 1, one, data };
    const foci_named bytes = { "\xff", 1, one, data };
    const foci_named twice[2] = { { "a", 1, one, data }, { "a", 1, one, data } };
    struct fixture  *x = *state;

    assert_int_equal(foci_npy_write(x->ctx, x->path, 9, one, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, -1, one, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, 1, negative, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, 2, huge, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, 1, one, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, &reserved, 1),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, &nameless, 1),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, &bytes, 1), FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, twice, 2), FOCI_ERR_ARG);
    assert_int_equal(entries(x->dir), 0);
}

static void expect_unwritten(struct fixture *x, const char *path, const char *reason)
{
    static const float data[1000];
    const int64_t      shape[1] = { 1000 };
    const foci_named   array = { "a", 1, shape, data };
    const int          before = entries(x->dir);

    for (int i = 0; i < 2; i++) {
        const foci_status status = i ? foci_npy_write(x->ctx, path, 1, shape, data)
                                     : foci_safetensors_write(x->ctx, path, &array, 1);
        assert_int_equal(status, FOCI_ERR_FILE);
        if (!strstr(foci_errmsg(x->ctx), reason) ||
            strncmp(foci_errmsg(x->ctx), path, strlen(path)) != 0)
            fail_msg("\"%s\" should name %s and \"%s\"", foci_errmsg(x->ctx), path,
                     reason);
        assert_int_equal(entries(x->dir), before);
    }
}

static void reports_failed_writes(void **state)
{
    const int64_t   shape[1] = { 1 };
    const float     data[1] = { 7 };
    struct fixture *x = *state;
    char            path[256];
    struct rlimit   old, low;

    snprintf(path, sizeof path, "%s/missing/o.npy", x->dir);
    expect_unwritten(x, path, "No such file");
    expect_unwritten(x, x->dir, "directory");
    if (access("/dev/full", W_OK) == 0)
        expect_unwritten(x, "/dev/full", "No space left");

    assert_int_equal(foci_npy_write(x->ctx, x->path, 1, shape, data), FOCI_OK);
    snprintf(path, sizeof path, "%s/o.npy", x->path);
    expect_unwritten(x, path, "Not a directory");

    /* A disk that fills up: the old file is still there afterwards. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 1024;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    expect_unwritten(x, x->path, "File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    check_content(x, x->path, 1, shape, data);
}

static void writes_behind_links_and_to_devices(void **state)
{
    const int64_t   shape[1] = { 1 };
    const float     data[1] = { 7 };
    struct fixture *x = *state;
    struct stat     st;
    char            link[160], name[400];

    assert_int_equal(foci_npy_write(x->ctx, x->path, 0, NULL, data), FOCI_OK);
    snprintf(link, sizeof link, "%s/link", x->dir);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(foci_npy_write(x->ctx, link, 1, shape, data), FOCI_OK);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    check_content(x, x->path, 1, shape, data);

    assert_int_equal(foci_npy_write(x->ctx, "/dev/null", 1, shape, data), FOCI_OK);
    assert_int_equal(lstat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));

    /* The longest name there can be. */
    snprintf(name, sizeof name, "%s/%0255d", x->dir, 0);
    assert_int_equal(foci_npy_write(x->ctx, name, 1, shape, data), FOCI_OK);
    check_content(x, name, 1, shape, data);
}

/*
 * The run
 */

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    const char     *tmp = getenv("TMPDIR");

    if (!x || foci_ctx_create(NULL, &x->ctx)) return -1;
    snprintf(x->dir, sizeof x->dir, "%.40s/foci-XXXXXX",
             tmp && strlen(tmp) <= 40 ? tmp : "/tmp");
    if (!mkdtemp(x->dir)) return -1;
    snprintf(x->path, sizeof x->path, "%s/file", x->dir);
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    DIR            *d = opendir(x->dir);
    char            path[400];

    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.300s", x->dir, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    const int left = rmdir(x->dir);
    foci_ctx_free(x->ctx);
    free(x);
    return left;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_types),
        TEST(reads_half_specials),
        TEST(reads_spellings),
        TEST(reads_fortran_order),
        TEST(refuses_npy),
        TEST(reads_safetensors),
        TEST(reads_empty_safetensors),
        TEST(refuses_safetensors),
        TEST(survives_damaged_npy),
        TEST(survives_damaged_safetensors),
        TEST(refuses_what_is_no_file),
        TEST(refuses_wrong_calls),
        TEST(converts_whole_numbers_only),
        TEST(survives_lack_of_memory),
        TEST(writes_npy),
        TEST(writes_safetensors),
        TEST(refuses_to_write_nonsense),
        TEST(reports_failed_writes),
        TEST(writes_behind_links_and_to_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
