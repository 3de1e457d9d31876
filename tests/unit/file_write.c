/* file_write.c -- writers of files leave either the old file or the new one. */
#define _XOPEN_SOURCE 700

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/files.h"
#include "support/folder.h"

static void check_content(struct files *x, const char *path, int n_dims,
                          const int64_t *shape, const float *data)
{
    foci_array a = { FOCI_SIZED(foci_array) };
    foci_file *file;
    float      out[64];

    assert_int_equal(foci_file_open(x->ctx, path, &file), FOCI_OK);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_OK);
    assert_int_equal(a.type, FOCI_ELTYPE_F32);
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
    const float   data[6] = { 1, -2, 3.5f, INFINITY, 0x1p-149f, 6 };
    struct files *x = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stat st;
        assert_int_equal(
            foci_npy_write(x->ctx, x->path, cases[i].n_dims, cases[i].shape, data),
            FOCI_OK);
        check_content(x, x->path, cases[i].n_dims, cases[i].shape, data);
        assert_int_equal(folder_entries(x->dir), 1);
        assert_int_equal(stat(x->path, &st), 0);
        assert_int_equal(st.st_mode & 0600, 0600);
    }
}

/* To a descriptor, byte by byte what goes to a file. */
static void sends_npy(void **state)
{
    const float   data[6] = { 1, -2, 3.5f, INFINITY, 0x1p-149f, 6 };
    const int64_t shape[2] = { 2, 3 };
    char          file[512], sent[512];
    int           ends[2];
    struct files *x = *state;

    assert_int_equal(foci_npy_write(x->ctx, x->path, 2, shape, data), FOCI_OK);
    FILE *in = fopen(x->path, "rb");
    assert_non_null(in);
    const size_t n = fread(file, 1, sizeof file, in);
    fclose(in);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(foci_npy_send(x->ctx, ends[1], 2, shape, data), FOCI_OK);
    assert_int_equal(read(ends[0], sent, sizeof sent), n);
    assert_memory_equal(sent, file, n);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(foci_npy_send(x->ctx, ends[1], 2, shape, data), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "descriptor"));
    assert_int_equal(foci_npy_send(x->ctx, ends[1], 9, shape, data), FOCI_ERR_ARG);
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
    struct files *x = *state;
    foci_file    *file;
    foci_array    a = { FOCI_SIZED(foci_array) };
    float         out[4];
    int           seen = 0;

    assert_int_equal(foci_safetensors_write(x->ctx, x->path, arrays, 3), FOCI_OK);
    assert_int_equal(folder_entries(x->dir), 1);
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
    struct files    *x = *state;

    assert_int_equal(foci_npy_write(x->ctx, x->path, 9, one, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, -1, one, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, 1, negative, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, 2, huge, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, x->path, 1, one, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, NULL, 1, one, data), FOCI_ERR_ARG);
    assert_int_equal(foci_npy_write(x->ctx, NULL, 9, one, data), FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, NULL, twice, 1), FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, &reserved, 1),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, &nameless, 1),
                     FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, &bytes, 1), FOCI_ERR_ARG);
    assert_int_equal(foci_safetensors_write(x->ctx, x->path, twice, 2), FOCI_ERR_ARG);
    assert_int_equal(folder_entries(x->dir), 0);
}

static void expect_unwritten(struct files *x, const char *path, const char *reason)
{
    static const float data[1000];
    const int64_t      shape[1] = { 1000 };
    const foci_named   array = { "a", 1, shape, data };
    const int          before = folder_entries(x->dir);

    for (int i = 0; i < 2; i++) {
        const foci_status status = i ? foci_npy_write(x->ctx, path, 1, shape, data)
                                     : foci_safetensors_write(x->ctx, path, &array, 1);
        assert_int_equal(status, FOCI_ERR_FILE);
        if (!strstr(foci_errmsg(x->ctx), reason) ||
            strncmp(foci_errmsg(x->ctx), path, strlen(path)) != 0)
            fail_msg("\"%s\" should name %s and \"%s\"", foci_errmsg(x->ctx), path,
                     reason);
        assert_int_equal(folder_entries(x->dir), before);
    }
}

static void reports_failed_writes(void **state)
{
    const int64_t shape[1] = { 1 };
    const float   data[1] = { 7 };
    struct files *x = *state;
    char          path[256];
    struct rlimit old, low;

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
    const int64_t shape[1] = { 1 };
    const float   data[1] = { 7 };
    struct files *x = *state;
    struct stat   st;
    char          link[160], name[400];

    assert_int_equal(foci_npy_write(x->ctx, x->path, 0, NULL, data), FOCI_OK);
    snprintf(link, sizeof link, "%s/link", x->dir);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(foci_npy_write(x->ctx, link, 1, shape, data), FOCI_OK);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    check_content(x, x->path, 1, shape, data);

    snprintf(link, sizeof link, "%s/astray", x->dir);
    assert_int_equal(symlink("nothing", link), 0);
    assert_int_equal(foci_npy_write(x->ctx, link, 1, shape, data), FOCI_ERR_FILE);
    assert_non_null(
        strstr(foci_errmsg(x->ctx), "is a link to a file that is not there"));
    assert_int_equal(folder_entries(x->dir), 3);

    assert_int_equal(foci_npy_write(x->ctx, "/dev/null", 1, shape, data), FOCI_OK);
    assert_int_equal(lstat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));

    /* The longest name there can be. */
    snprintf(name, sizeof name, "%s/%0255d", x->dir, 0);
    assert_int_equal(foci_npy_write(x->ctx, name, 1, shape, data), FOCI_OK);
    check_content(x, name, 1, shape, data);
}

static void keeps_permissions(void **state)
{
    enum { NOBODY = 65534 };
    const int64_t shape[1] = { 1 };
    const float   old[1] = { 7 }, new[1] = { 8 };
    struct files *x = *state;
    struct stat   st;

    assert_int_equal(foci_npy_write(x->ctx, x->path, 1, shape, old), FOCI_OK);
    for (mode_t mode = 0600; mode <= 0666; mode += 033) {
        assert_int_equal(chmod(x->path, mode), 0);
        assert_int_equal(foci_npy_write(x->ctx, x->path, 1, shape, old), FOCI_OK);
        assert_int_equal(stat(x->path, &st), 0);
        assert_int_equal(st.st_mode & 0777, mode);
    }

    /* Permissions are nothing to root. */
    const bool root = geteuid() == 0;
    assert_int_equal(chmod(x->path, 0444), 0);
    assert_int_equal(chmod(x->dir, 0777), 0);
    if (root) assert_int_equal(seteuid(NOBODY), 0);
    const foci_status status = foci_npy_write(x->ctx, x->path, 1, shape, new);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(x->ctx), "cannot be written"));
    check_content(x, x->path, 1, shape, old);
    assert_int_equal(folder_entries(x->dir), 1);
}

static void check_bytes(const char *path, const void *data, size_t n)
{
    char  got[8];
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got, f), n);
    assert_memory_equal(got, data, n);
    fclose(f);
}

static void writes_bytes(void **state)
{
    struct files *x = *state;

    assert_int_equal(foci_file_write(x->ctx, x->path, "a\0b", 3), FOCI_OK);
    check_bytes(x->path, "a\0b", 3);
    assert_int_equal(foci_file_write(x->ctx, x->path, NULL, 0), FOCI_OK);
    check_bytes(x->path, "", 0);
    assert_int_equal(foci_file_write(x->ctx, NULL, "a", 1), FOCI_ERR_ARG);
    assert_int_equal(foci_file_write(x->ctx, x->path, NULL, 1), FOCI_ERR_ARG);
    assert_int_equal(foci_file_write(x->ctx, "/no/such/place", "a", 1), FOCI_ERR_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(writes_npy),
        FILES_TEST(sends_npy),
        FILES_TEST(writes_safetensors),
        FILES_TEST(writes_bytes),
        FILES_TEST(refuses_to_write_nonsense),
        FILES_TEST(reports_failed_writes),
        FILES_TEST(writes_behind_links_and_to_devices),
        FILES_TEST(keeps_permissions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
