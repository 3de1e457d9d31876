/* file.h -- arrays in files: NumPy's .npy and .safetensors.
 *
 * Files are mapped; every size is checked against the file before anything is
 * read.  Writers make a temporary file beside the target and rename it, so a
 * crash or a full disk never leaves half a file behind.
 */
#ifndef FOCI_FILE_H
#define FOCI_FILE_H

#include "foci/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most axes of an array. */
enum { FOCI_MAX_DIMS = 8 };

/* Types of elements in files. */
typedef enum foci_eltype {
    FOCI_ELTYPE_BOOL,
    FOCI_ELTYPE_I8,
    FOCI_ELTYPE_U8,
    FOCI_ELTYPE_I16,
    FOCI_ELTYPE_U16,
    FOCI_ELTYPE_I32,
    FOCI_ELTYPE_U32,
    FOCI_ELTYPE_I64,
    FOCI_ELTYPE_U64,
    FOCI_ELTYPE_F16,
    FOCI_ELTYPE_BF16,
    FOCI_ELTYPE_F32,
    FOCI_ELTYPE_F64
} foci_eltype;

typedef struct foci_array {
    size_t      size;
    const char *name; /* in a .safetensors file; "" in a .npy file */
    foci_eltype type;
    int         n_dims;
    int64_t     shape[FOCI_MAX_DIMS];
    int64_t     count;   /* product of shape */
    int         fortran; /* stored with the first index running fastest */
    int         swapped; /* stored with the other byte order than this machine's */
    const void *data;    /* in the mapping; may be unaligned */
} foci_array;

/* An open file.  Its arrays are there as long as it is. */
typedef struct foci_file foci_file;

/* Open by content, not by name.  The reason of a failure goes to foci_errmsg(ctx). */
FOCI_API foci_status foci_file_open(foci_ctx *ctx, const char *path, foci_file **file);
FOCI_API void        foci_file_free(foci_file *file);
/* The same of what a reader gives up to its end, which is kept in memory. */
FOCI_API foci_status foci_file_read(foci_ctx *ctx, const foci_reader *reader,
                                    foci_file **file);

/* The number of arrays, and array number i. */
FOCI_API int         foci_file_count(const foci_file *file);
FOCI_API foci_status foci_file_array(const foci_file *file, int i, foci_array *array);

/* Convert a whole array to packed floats, C order; for integers and bool too. */
FOCI_API void foci_array_to_f32(const foci_array *array, float *out);
/* To int32: refused unless every element is a whole number that fits. */
FOCI_API foci_status foci_array_to_i32(const foci_array *array, int32_t *out);

/* Write a packed array, C order. */
FOCI_API foci_status foci_npy_write(foci_ctx *ctx, const char *path, int n_dims,
                                    const int64_t *shape, const float *data);

/* The same to an open descriptor, of a pipe for instance, as it is and without a rename. */
FOCI_API foci_status foci_npy_send(foci_ctx *ctx, int fd, int n_dims,
                                   const int64_t *shape, const float *data);

/* A packed array to be written, C order.  The struct is complete and never grows. */
typedef struct foci_named {
    const char    *name;
    int            n_dims;
    const int64_t *shape;
    const float   *data;
} foci_named;

/* Write n of them into one file. */
FOCI_API foci_status foci_safetensors_write(foci_ctx *ctx, const char *path,
                                            const foci_named *arrays, int n);

/* Write bytes as they are. */
FOCI_API foci_status foci_file_write(foci_ctx *ctx, const char *path, const void *data,
                                     size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
