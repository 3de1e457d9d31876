/* file.c -- files of arrays, whatever their format: damaged ones are refused with a reason
 * or read as what they then say, calls that are wrong are refused, whole numbers are
 * converted only if they are, and allocations may fail. */
#define _XOPEN_SOURCE 700

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/files.h"

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

static void open_damaged(struct files *x, const struct bytes *b, int *opened)
{
    foci_file        *file;
    const foci_status status =
        (files_save(x->path, b), foci_file_open(x->ctx, x->path, &file));

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

static void damage(struct files *x, const struct bytes *b, size_t data_bytes)
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
    const float   data[6] = { 1, 2, 3, 4, 5, 6 };
    struct files *x = *state;
    struct bytes  b =
        files_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n",
                  data, sizeof data);
    damage(x, &b, sizeof data);
    b = files_npy(2, "{'descr': '>i2', 'fortran_order': True, 'shape': (3, 4), }\n",
                  data, 24);
    damage(x, &b, 24);
}

static void survives_damaged_safetensors(void **state)
{
    const struct bytes b = files_two();
    damage(*state, &b, FILES_TWO_DATA);
}

static void refuses_what_is_no_file(void **state)
{
    struct files *x = *state;
    foci_file    *file;

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
    struct files      *x = *state;
    const struct bytes b =
        files_npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "x", 1);
    foci_array a = { .size = 1 };
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

    files_save(x->path, &b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_OK);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(x->ctx), "foci_array.size is 1"));
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
    struct files *x = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bytes b =
            files_npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
                      &cases[i].value, 8);
        foci_array a;
        int32_t    out = 77;
        foci_file *file = files_open_one(x, &b, &a);
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

/*
 * What a reader gives
 */

struct given {
    const struct bytes *b;
    size_t              at, most; /* most: bytes at a time */
    bool                fails;    /* at the end */
};

static int64_t give(void *user, void *to, int64_t bytes)
{
    struct given *g = user;
    size_t        n = g->b->n - g->at;

    if (!n && g->fails) return -1;
    if (n > g->most) n = g->most;
    if (n > (size_t)bytes) n = (size_t)bytes;
    if (n) memcpy(to, g->b->data + g->at, n);
    g->at += n;
    return (int64_t)n;
}

static const char *why(void *user)
{
    (void)user;
    return "the line is dead";
}

static void reads_what_a_reader_gives(void **state)
{
    const size_t       most[] = { 1, 7, 4096 };
    const struct bytes b = files_two();
    struct files      *x = *state;
    foci_file         *file, *same;

    files_save(x->path, &b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &same), FOCI_OK);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        struct given      g = { &b, .most = most[i] };
        const foci_reader r = { FOCI_SIZED(foci_reader), .user = &g, .read = give };
        assert_int_equal(foci_file_read(x->ctx, &r, &file), FOCI_OK);
        assert_int_equal(foci_file_count(file), 2);
        for (int n = 0; n < 2; n++) {
            foci_array a = { FOCI_SIZED(foci_array) }, c = { FOCI_SIZED(foci_array) };
            assert_int_equal(foci_file_array(file, n, &a), FOCI_OK);
            assert_int_equal(foci_file_array(same, n, &c), FOCI_OK);
            assert_string_equal(a.name, c.name);
            assert_int_equal(a.count, c.count);
            assert_int_equal(a.type, c.type);
            assert_memory_equal(a.data, c.data, (size_t)a.count * 2);
        }
        foci_file_free(file);
    }
    foci_file_free(same);
}

static void refuse_reader(struct files *x, const foci_reader *r, const char *reason)
{
    foci_file *file = (foci_file *)x;

    assert_int_equal(foci_file_read(x->ctx, r, &file), FOCI_ERR_FILE);
    assert_null(file);
    assert_string_equal(foci_errmsg(x->ctx), reason);
}

static void refuses_bad_readers(void **state)
{
    const struct bytes b =
        files_npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", "x", 1);
    const struct bytes empty = { .n = 0 };
    struct files      *x = *state;
    struct given       g = { &b, .most = 10 };
    foci_reader r = { FOCI_SIZED(foci_reader), .name = "line", .user = &g, .read = give,
                      .error = why };
    foci_file  *file;

    refuse_reader(x, &r, "line: its shape needs 2 bytes of data but the file has 1");
    g = (struct given){ &b, .most = 10, .fails = true };
    refuse_reader(x, &r, "line: cannot be read: the line is dead");
    g = (struct given){ &b, .most = 10, .fails = true };
    r.error = NULL;
    refuse_reader(x, &r, "line: cannot be read: its reader failed");
    g = (struct given){ &empty, .most = 10 };
    r.name = NULL;
    refuse_reader(x, &r, "text: is empty; a .npy or .safetensors file is needed");

    r.read = NULL;
    assert_int_equal(foci_file_read(x->ctx, &r, &file), FOCI_ERR_ARG);
    r.size = 1;
    assert_int_equal(foci_file_read(x->ctx, &r, &file), FOCI_ERR_ARG);
    assert_int_equal(foci_file_read(x->ctx, NULL, &file), FOCI_ERR_ARG);
    assert_int_equal(foci_file_read(x->ctx, &r, NULL), FOCI_ERR_ARG);
}

static foci_status open_or_read(foci_ctx *ctx, const struct files *x,
                                const struct bytes *b, bool read, foci_file **file)
{
    struct given      g = { b, .most = 50 };
    const foci_reader r = { FOCI_SIZED(foci_reader), .user = &g, .read = give };

    return read ? foci_file_read(ctx, &r, file) : foci_file_open(ctx, x->path, file);
}

static void survives_lack_of_memory(void **state)
{
    struct files      *x = *state;
    const struct bytes files[2] = {
        files_npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "x", 1),
        files_two(),
    };

    for (int f = 0; f < 4; f++) {
        files_save(x->path, &files[f % 2]);
        foci_status status = FOCI_ERR_MEMORY;
        for (int n = 0; status; n++) {
            struct rationed    r = { .left = 1000 };
            const foci_options options = { FOCI_SIZED(foci_options),
                                           .alloc = rationed_alloc, .user = &r };
            foci_ctx          *ctx;
            foci_file         *file;
            assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
            r.left = n;
            status = open_or_read(ctx, x, &files[f % 2], f > 1, &file);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(survives_damaged_npy),
        FILES_TEST(survives_damaged_safetensors),
        FILES_TEST(refuses_what_is_no_file),
        FILES_TEST(refuses_wrong_calls),
        FILES_TEST(converts_whole_numbers_only),
        FILES_TEST(reads_what_a_reader_gives),
        FILES_TEST(refuses_bad_readers),
        FILES_TEST(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
