/* array_file.h -- files of arrays by name: .npy, .safetensors, .npz, or standard input. */
#ifndef FOCI_CLI_ARRAY_FILE_H
#define FOCI_CLI_ARRAY_FILE_H

#include "cli/gz.h"
#include "foci/file.h"

struct array_file {
    const struct args *a;
    foci_ctx          *ctx;
    char              *path, *shown; /* shown: what messages begin with */
    const char        *wanted;       /* the name behind the path; NULL: there is none */
    foci_file         *file;         /* of .npz the array read last */
    struct npz        *npz;
    int                n;
    char               name[NPZ_NAME];
};

/* Open FILE, FILE:NAME, or "-" once.  Messages begin with `prefix`, such as "--q ".  EXIT_OK,
 * or a status with the message printed.  array_file_close() in any case. */
int array_file_open(const struct args *a, foci_ctx *ctx, const char *prefix,
                    const char *text, struct array_file *f);
/* The name of array number i, until the next call. */
const char *array_file_name(struct array_file *f, int i);
/* Array number i, until the next call; with the message printed, if it cannot be read. */
int array_file_get(struct array_file *f, int i, foci_array *out);
/* Which one is meant: the one named behind the path, the only one, or the one called `name`;
 * -1, with the message printed: there is none. */
int  array_file_find(struct array_file *f, const char *name);
void array_file_close(struct array_file *f);

#endif
