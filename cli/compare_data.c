/* compare_data.c -- --data FOLDER: files of a folder by their names.
 *
 *     train*, valid* or dev*, test*       "train.txt", "test2016.de.gz"
 *
 * Of translations there may be two files of each, whose languages are the ends of their names:
 * the first of the alphabet is the source, with --reverse the other.  Options that name files
 * win over the folder.
 */
#define _DEFAULT_SOURCE /* scandir() and alphasort() */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/comparison.h"

enum { PAIR = 2 };

/* Paths of the files of a split; n may be more than there is room for. */
struct split_files {
    char *path[PAIR];
    int   n;
};

/* "train", not "training". */
static bool begins(const char *name, const char *word)
{
    const size_t n = strlen(word);
    return !strncmp(name, word, n) && !isalpha((unsigned char)name[n]);
}

static void find_files(const char *folder, struct dirent **all, int n, const char *word,
                       struct split_files *f)
{
    for (int i = 0; i < n; i++) {
        if (!begins(all[i]->d_name, word)) continue;
        if (f->n < PAIR) f->path[f->n] = compare_text("%s/%s", folder, all[i]->d_name);
        f->n++;
    }
}

static void swap(struct split_files *f)
{
    char *first = f->path[0];

    f->path[0] = f->path[1];
    f->path[1] = first;
}

/* One file, or of translations two. */
static int check_files(const struct args *a, const char *folder, const char *word,
                       const struct split_files *f, bool pairs)
{
    if (f->n <= (pairs ? PAIR : 1)) return EXIT_OK;
    return usage_error(a,
                       "--data is %s, which has %d files that begin with %s; it takes "
                       "%s of each of train, valid and test",
                       folder, f->n, word, pairs ? "one, or one a language," : "one");
}

/* The files as options, unless they are there. */
static void take_files(const struct split_files *f, json_t *options, const char *one,
                       const char *source, const char *target)
{
    if (!f->n || json_object_get(options, one) || json_object_get(options, source))
        return;
    json_object_set_new(options, f->n == PAIR ? source : one,
                        compare_string(f->path[0]));
    if (f->n == PAIR) json_object_set_new(options, target, compare_string(f->path[1]));
}

static int take_folder(const struct args *a, const char *folder,
                       const struct split_files f[3], json_t *d, bool pairs)
{
    static const char *const words[] = { "train", "valid", "test" };
    json_t                  *options = json_object_get(d, "options");
    json_t                  *test = json_object_get(d, "test");
    int                      code = EXIT_OK;

    if (!f[0].n)
        return usage_error(a,
                           "--data is %s, which has no file that begins with train; it "
                           "takes a file, or a folder of train*, valid* and test*",
                           folder);
    for (int i = 0; i < 3 && !code; i++)
        code = check_files(a, folder, words[i], &f[i], pairs);
    if (code) return code;
    json_object_del(options, "data");
    if (f[0].n == PAIR) json_object_del(options, "reverse");
    take_files(&f[0], options, "data", "source", "target");
    take_files(&f[1], options, "valid", "valid", "valid-target");
    if (f[2].n && !test) {
        json_object_set_new(d, "test", test = json_object());
        take_files(&f[2], test, "data", "source", "target");
    }
    note(a, "%s: trains on %s, validates by %s, tests by %s", folder, f[0].path[0],
         f[1].n ? f[1].path[0] : "the end of it", f[2].n ? f[2].path[0] : "none");
    return EXIT_OK;
}

int compare_take_folder(const struct args *a, json_t *d)
{
    json_t     *options = json_object_get(d, "options");
    const char *folder = json_string_value(json_object_get(options, "data"));
    const char *task = json_string_value(json_object_get(d, "task"));
    struct stat st;

    if (!folder || !task || stat(folder, &st) || !S_ISDIR(st.st_mode)) return EXIT_OK;
    struct dirent    **all;
    const int          n = scandir(folder, &all, NULL, alphasort);
    struct split_files f[3] = { { { NULL }, 0 } };
    const bool         pairs = !strcmp(task, "translate");
    if (n < 0) return failure(a, "%s: %s", folder, strerror(errno));
    char *copy = compare_text("%s", folder); /* options lose theirs */
    find_files(copy, all, n, "train", &f[0]);
    find_files(copy, all, n, "valid", &f[1]);
    find_files(copy, all, n, "dev", &f[1]);
    find_files(copy, all, n, "test", &f[2]);
    for (int i = 0; i < 3; i++)
        if (f[i].n == PAIR && json_object_get(options, "reverse")) swap(&f[i]);
    const int code = take_folder(a, copy, f, d, pairs);
    for (int i = 0; i < n; i++)
        free(all[i]);
    for (int i = 0; i < 3 * PAIR; i++)
        free(f[i / PAIR].path[i % PAIR]);
    free(all);
    free(copy);
    return code;
}
