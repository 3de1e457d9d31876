/* safetensors.c -- every variant of .safetensors is read, and what is none is refused with
 * a reason. */
#include <math.h>

#include "support/files.h"

static void reads_safetensors(void **state)
{
    struct files      *x = *state;
    const struct bytes b = files_two();
    foci_array         a = { FOCI_SIZED(foci_array) };
    foci_file         *file;
    float              out[3];

    files_save(x->path, &b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    assert_int_equal(foci_file_count(file), 2);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_OK);
    assert_string_equal(a.name, "a");
    assert_int_equal(a.type, FOCI_ELTYPE_BF16);
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
    struct files *x = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b = files_safetensors(cases[i].header, NULL, 0);
        foci_file         *file;
        files_save(x->path, &b);
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
        { TENSOR("F32", "[1]", "[0,8]"),
          "[0, 8]; accepted are a beginning and an end from 0 to 4" },
        { TENSOR("F32", "[1]", "[4,0]"), "[4, 0]; accepted are a beginning" },
        { TENSOR("F32", "[1]", "[-4,0]"), "[-4, 0]" },
        { TENSOR("F32", "[1]", "[0,9223372036854775807]"), "9223372036854775807" },
        { TENSOR("F32", "[1]", "[0]"), "two whole numbers" },
        { TENSOR("F32", "[1]", "4"), "two whole numbers" },
        { TENSOR("F16", "[1]", "[0,2]"), "take 2 bytes" },
        { TENSOR("F16", "[1]", "[2,4]"),
          "begins at byte 2 of the data; what stands before it ends at 0" },
        { TENSOR("F16", "[1]", "[0,4]"), "needs 2 bytes" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"a\",4]}}",
          "two whole numbers" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"a\"]}}",
          "two whole numbers" },
        { "{\"__metadata__\":1}", "__metadata__" },
        { "{\"__metadata__\":{\"a\":1}}", "__metadata__" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          "begins at byte 0 of the data; what stands before it ends at 4" },
        { "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
          "not JSON" },
        { "{\"a\\nb\":{\"dtype\":\"F9\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          "'a?b'" },
    };
    struct files *x = *state;
    const float   one = 1;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b = files_safetensors(cases[i].header, &one, sizeof one);
        files_refuse(x, &b, cases[i].reason);
    }
    struct bytes b = files_safetensors("{}", NULL, 0);
    memset(b.data, 0xff, 8);
    files_refuse(x, &b, "header takes 18446744073709551615 bytes");
    b = files_safetensors("{}", NULL, 0);
    b.data[0] = 3;
    files_refuse(x, &b, "header takes 3 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(reads_safetensors),
        FILES_TEST(reads_empty_safetensors),
        FILES_TEST(refuses_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
