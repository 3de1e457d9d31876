/* npy.c -- every variant of .npy is read, and what is none is refused with a reason. */
#include <math.h>
#include <stdio.h>

#include "support/files.h"

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
    struct files *x = *state;

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
            const struct bytes b =
                files_npy(1 + (int)(t % 3), header, data, 3 * (size_t)n);
            foci_file *file = files_open_one(x, &b, &a);
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
    struct files *x = *state;
    foci_array    a;
    float         out[4];

    const struct bytes b =
        files_npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (4,)}", data,
                  sizeof data);
    foci_file *file = files_open_one(x, &b, &a);
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
    struct files *x = *state;
    const float   data[6] = { 1, 2, 3, 4, 5, 6 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_array         a;
        float              out[6] = { 0 };
        const struct bytes b = files_npy(1, cases[i].header, data, cases[i].bytes);
        foci_file         *file = files_open_one(x, &b, &a);
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
    struct files *x = *state;
    foci_array    a;
    static float  in[1800], out[1800];
    FILE         *f = fopen(x->path, "wb");
    const char   *header =
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 300), }";

    struct bytes head = files_npy(1, header, NULL, 0);
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
    struct files *x = *state;
    const float   one = 1;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b = files_npy(1, cases[i].header, &one, sizeof one);
        files_refuse(x, &b, cases[i].reason);
    }
    struct bytes b = files_npy(4, "{}", NULL, 0);
    files_refuse(x, &b, "version 4.0");
    b = files_npy(2, "{}", NULL, 0);
    memset(b.data + 8, 0xff, 4);
    files_refuse(x, &b, "header takes 4294967295 bytes");
    b = (struct bytes){ .n = 0 };
    files_refuse(x, &b, "empty");
    files_put(&b, "PK\3\4 not arrays", 15);
    files_refuse(x, &b, "neither .npy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(reads_types),     FILES_TEST(reads_half_specials),
        FILES_TEST(reads_spellings), FILES_TEST(reads_fortran_order),
        FILES_TEST(refuses_npy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
