/* files.c -- a folder for a test of files, and files made by hand. */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "support/files.h"

void files_put(struct bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof b->data);
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_length(struct bytes *b, uint64_t length, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)(length >> (8 * i));
        files_put(b, &c, 1);
    }
}

struct bytes files_npy(int version, const char *header, const void *data, size_t n)
{
    struct bytes        b = { .n = 0 };
    const unsigned char v[2] = { (unsigned char)version, 0 };

    files_put(&b, "\x93NUMPY", 6);
    files_put(&b, v, 2);
    put_length(&b, strlen(header), version == 1 ? 2 : 4);
    files_put(&b, header, strlen(header));
    files_put(&b, data, n);
    return b;
}

struct bytes files_safetensors(const char *header, const void *data, size_t n)
{
    struct bytes b = { .n = 0 };

    put_length(&b, strlen(header), 8);
    files_put(&b, header, strlen(header));
    files_put(&b, data, n);
    return b;
}

struct bytes files_two(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[6,14]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[0,6]}}   ";

    static const unsigned char data[FILES_TWO_DATA] = { 0x80, 0x3f, 0x00, 0xc0, 0x80,
                                                        0x7f, 0,    0,    0x40, 0x3f,
                                                        0,    0,    0,    0x80 };

    return files_safetensors(header, data, sizeof data);
}

void files_save(const char *path, const struct bytes *b)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

foci_file *files_open_one(struct files *x, const struct bytes *b, foci_array *a)
{
    foci_file *file;

    files_save(x->path, b);
    if (foci_file_open(x->ctx, x->path, &file)) fail_msg("%s", foci_errmsg(x->ctx));
    assert_int_equal(foci_file_count(file), 1);
    *a = (foci_array){ FOCI_SIZED(foci_array) };
    assert_int_equal(foci_file_array(file, 0, a), FOCI_OK);
    return file;
}

void files_refuse(struct files *x, const struct bytes *b, const char *reason)
{
    foci_file *file = (foci_file *)x;

    files_save(x->path, b);
    assert_int_equal(foci_file_open(x->ctx, x->path, &file), FOCI_ERR_FILE);
    assert_null(file);
    const char *message = foci_errmsg(x->ctx);
    if (strncmp(message, x->path, strlen(x->path)) != 0 || !strstr(message, reason) ||
        strchr(message, '\n'))
        fail_msg("\"%s\" should be one line that names the file and \"%s\"", message,
                 reason);
}

int files_set_up(void **state)
{
    struct files *x = calloc(1, sizeof *x);
    const char   *tmp = getenv("TMPDIR");

    if (!x || foci_ctx_create(NULL, &x->ctx)) return -1;
    snprintf(x->dir, sizeof x->dir, "%.40s/foci-XXXXXX",
             tmp && strlen(tmp) <= 40 ? tmp : "/tmp");
    if (!mkdtemp(x->dir)) return -1;
    snprintf(x->path, sizeof x->path, "%s/file", x->dir);
    *state = x;
    return 0;
}

int files_tear_down(void **state)
{
    struct files *x = *state;
    DIR          *d = opendir(x->dir);
    char          path[400];

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
