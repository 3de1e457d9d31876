/* files.h -- what tests of files share: a folder of their own, and files made by hand. */
#ifndef FOCI_FILES_H
#define FOCI_FILES_H

#include "foci/file.h"
#include "test.h"

struct files {
    foci_ctx *ctx;
    char      dir[64];
    char      path[128]; /* of a file in it, which is not there yet */
};

struct bytes {
    unsigned char data[2048];
    size_t        n;
};

void         files_put(struct bytes *b, const void *data, size_t n);
struct bytes files_npy(int version, const char *header, const void *data, size_t n);
struct bytes files_safetensors(const char *header, const void *data, size_t n);
/* Arrays a and b, of bf16 and f32, with so many bytes in all. */
enum { FILES_TWO_DATA = 14 };
struct bytes files_two(void);
void         files_save(const char *path, const struct bytes *b);

/* Save, open and give the only array. */
foci_file *files_open_one(struct files *x, const struct bytes *b, foci_array *a);
/* Save, and be refused in one line that names the file and the reason. */
void files_refuse(struct files *x, const struct bytes *b, const char *reason);

/* *state is a struct files. */
int files_set_up(void **state);
int files_tear_down(void **state);
#define FILES_TEST(name)                                                               \
    cmocka_unit_test_setup_teardown(name, files_set_up, files_tear_down)

#endif
