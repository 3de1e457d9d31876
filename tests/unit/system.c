/* system.c -- calls of the system that fail while files are read and written: a status,
 * the reason, and the old file or the new one.  The linker sends them through here
 * (--wrap). */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foci/file.h"
#include "support/folder.h"

int     __real_fstat(int fd, struct stat *st);
void   *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
ssize_t __real_write(int fd, const void *data, size_t n);
int     __real_fsync(int fd);
int     __real_close(int fd);
int     __real_rename(const char *from, const char *to);

int     __wrap_fstat(int fd, struct stat *st);
void   *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int     __wrap_fsync(int fd);
int     __wrap_close(int fd);
int     __wrap_rename(const char *from, const char *to);

enum call { NONE, FSTAT, MMAP, WRITE, FSYNC, CLOSE, RENAME };

/* The call that fails next, once, and how. */
static enum call failing;
static int       reason;

static bool fails(enum call call)
{
    if (failing != call) return false;
    failing = NONE;
    errno = reason;
    return true;
}

int __wrap_fstat(int fd, struct stat *st)
{
    return fails(FSTAT) ? -1 : __real_fstat(fd, st);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails(MMAP) ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, offset);
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    return fails(WRITE) ? -1 : __real_write(fd, data, n);
}

int __wrap_fsync(int fd) { return fails(FSYNC) ? -1 : __real_fsync(fd); }

int __wrap_close(int fd)
{
    const int done = __real_close(fd);
    return fails(CLOSE) ? -1 : done;
}

int __wrap_rename(const char *from, const char *to)
{
    return fails(RENAME) ? -1 : __real_rename(from, to);
}

static char folder[64], path[96];

static int make(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/foci-system-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/x", folder);
    return foci_ctx_create(NULL, (foci_ctx **)state);
}

static int release(void **state)
{
    foci_ctx_free(*state);
    unlink(path);
    return rmdir(folder);
}

static const int64_t shape[] = { 2 };

static foci_status put(foci_ctx *ctx, float first)
{
    const float data[] = { first, 2 };
    return foci_npy_write(ctx, path, 1, shape, data);
}

/* The first number in the file. */
static float first(foci_ctx *ctx)
{
    foci_file *file;
    foci_array a = { FOCI_SIZED(foci_array) };
    float      x[2];
    assert_int_equal(foci_file_open(ctx, path, &file), FOCI_OK);
    assert_int_equal(foci_file_array(file, 0, &a), FOCI_OK);
    foci_array_to_f32(&a, x);
    foci_file_free(file);
    return x[0];
}

static void reading(void **state)
{
    static const struct {
        enum call   call;
        const char *says;
    } calls[] = { { FSTAT, "cannot be examined" }, { MMAP, "cannot be mapped" } };
    foci_file *file;

    assert_int_equal(put(*state, 1), FOCI_OK);
    for (int i = 0; i < 2; i++) {
        failing = calls[i].call;
        reason = EIO;
        assert_int_equal(foci_file_open(*state, path, &file), FOCI_ERR_FILE);
        assert_int_equal(failing, NONE);
        assert_null(file);
        assert_non_null(strstr(foci_errmsg(*state), calls[i].says));
        assert_non_null(strstr(foci_errmsg(*state), strerror(EIO)));
    }
}

static void writing(void **state)
{
    static const struct {
        enum call   call;
        const char *says;
    } calls[] = {
        { WRITE, "cannot be written" },
        { FSYNC, "cannot be synced" },
        { CLOSE, "cannot be written" },
        { RENAME, "cannot be renamed into place" },
    };

    assert_int_equal(put(*state, 1), FOCI_OK);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        failing = calls[i].call;
        reason = ENOSPC;
        assert_int_equal(put(*state, 7), FOCI_ERR_FILE);
        assert_int_equal(failing, NONE);
        assert_non_null(strstr(foci_errmsg(*state), calls[i].says));
        assert_non_null(strstr(foci_errmsg(*state), strerror(ENOSPC)));
        assert_int_equal(folder_entries(folder), 1);
        assert_true(first(*state) == 1);
    }
    failing = WRITE;
    reason = EINTR; /* and once more */
    assert_int_equal(put(*state, 3), FOCI_OK);
    assert_int_equal(failing, NONE);
    assert_true(first(*state) == 3);
}

static void interrupted_pipe(void **state)
{
    const float data[] = { 1, 2 };

    failing = WRITE;
    reason = EINTR; /* its reader may never come */
    assert_int_equal(foci_npy_write(*state, "/dev/null", 1, shape, data), FOCI_ERR_FILE);
    assert_non_null(strstr(foci_errmsg(*state), strerror(EINTR)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading, make, release),
        cmocka_unit_test_setup_teardown(writing, make, release),
        cmocka_unit_test_setup_teardown(interrupted_pipe, make, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
