/* tensors.h -- arrays of the command line: from their files, with their shapes. */
#ifndef FOCI_CLI_TENSORS_H
#define FOCI_CLI_TENSORS_H

#include "cli/cli.h"
#include "foci/file.h"

struct array {
    const char *option; /* "q", for messages */
    const char *path;   /* NULL: not given, and all else is zero */
    int         n_dims;
    int64_t     shape[FOCI_MAX_DIMS]; /* as in the file */
    int64_t     count;
    float      *data; /* in C order */
    int32_t    *ints; /* instead of data, from array_load_ints() */
};

/* Read a whole array of FILE, FILE:NAME or "-", standard input.  A .npy file has one; of
 * several in a .safetensors or .npz file the one called NAME or, without that, `name`.  Of an array that was loaded, or not, array_free(). */
int  array_load(const struct args *a, foci_ctx *ctx, const char *option,
                const char *name, const char *path, struct array *out);
int  array_load_ints(const struct args *a, foci_ctx *ctx, const char *option,
                     const char *name, const char *path, struct array *out);
void array_free(struct array *x);
/* Shape and numbers of an array of a file that is open. */
void array_of(const foci_array *in, struct array *out);

/* Batch, heads, rows and width of an array with 2 to 4 axes, 1 for the axes it does
 * not have; EXIT_FAILED with the message printed, which names what is accepted, if it
 * has others. */
int array_axes(const struct args *a, const struct array *x, const char *accepted,
               int64_t axes[4]);

/* "2x8x64", "a number" without axes.  Negative lengths print as the letters of
 * `any`. */
enum { SHAPE_TEXT = 192 };
const char *shape_text(int n_dims, const int64_t *shape, const char *any,
                       char text[SHAPE_TEXT]);

/* f32 to bf16, to the nearest, ties to even; and back. */
void to_bf16(const float *in, int64_t n, uint16_t *out);
void from_bf16(const uint16_t *in, int64_t n, float *out);

#endif
