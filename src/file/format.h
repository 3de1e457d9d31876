/* format.h -- what the readers and writers of array files share. */
#ifndef FOCI_FORMAT_H
#define FOCI_FORMAT_H

#include <jansson.h>

#include "core/core.h"
#include "foci/file.h"

struct foci_file {
    foci_ctx            *ctx;
    char                *path;
    size_t               path_bytes;
    const unsigned char *map;         /* [bytes] the whole file */
    size_t               bytes, room; /* room: allocated for map; 0: it is a mapping */
    foci_array          *arrays;      /* [n] of [cap], in the order of their data */
    int                  n, cap;
    json_t              *header; /* of a .safetensors file: owns the names */
};

/* "PATH: reason" into ctx; FOCI_ERR_FILE. */
foci_status file_fail(foci_ctx *ctx, const char *path, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Fill f->arrays from f->map, whose first bytes have been checked. */
foci_status npy_read(struct foci_file *f);
foci_status safetensors_read(struct foci_file *f);

/* "F32": how the format names a type. */
const char *safetensors_dtype(foci_eltype type);

/* Write n packed arrays whose sizes are known to be right; metadata: texts by name, or
 * NULL. */
foci_status safetensors_write(foci_ctx *ctx, const char *path, const foci_array *arrays,
                              int n, json_t *metadata);

/* The header of a .npy file, of which f->map may have the beginning only: an empty array is
 * filled but for its data, which are `bytes` from byte `begin` on. */
foci_status npy_parse(struct foci_file *f, foci_array *a, size_t *begin, size_t *bytes);

/* Bytes of one element. */
size_t eltype_bytes(foci_eltype type);

/* The product of a shape, and its bytes.  False when a length is negative, or the
 * product of those that are not zero does not fit: what is accepted here can be
 * walked with strides, even when one length is zero. */
bool shape_size(int n_dims, const int64_t *shape, foci_eltype type, int64_t *count,
                size_t *bytes);

static inline bool host_is_little(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

#endif
