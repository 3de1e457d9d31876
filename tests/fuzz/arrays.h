/* arrays.h -- what the targets of the two file formats share: a reader called on bytes
 * in memory, where a sanitizer sees a step beyond their end. */
#ifndef FOCI_FUZZ_ARRAYS_H
#define FOCI_FUZZ_ARRAYS_H

#include "file/format.h"
#include "fuzz/fuzz.h"

enum { LARGEST = 1 << 16 };

/* Whatever the header said, an array lies within the file and can be converted. */
static inline void fuzz_array(const struct foci_file *f, const foci_array *a)
{
    const unsigned char *data = a->data;
    const size_t         bytes = (size_t)a->count * eltype_bytes(a->type);
    int64_t              count = 1;

    MUST(a->name && a->n_dims >= 0 && a->n_dims <= FOCI_MAX_DIMS);
    for (int i = 0; i < a->n_dims; i++)
        count *= a->shape[i] ? a->shape[i] : 1;
    for (int i = 0; i < a->n_dims; i++)
        if (!a->shape[i]) count = 0;
    MUST(count == a->count);
    MUST(data >= f->map && bytes <= (size_t)(f->map + f->bytes - data));

    float   *f32 = malloc((size_t)a->count * sizeof *f32 + 1);
    int32_t *i32 = malloc((size_t)a->count * sizeof *i32 + 1);
    MUST(f32 && i32);
    foci_array_to_f32(a, f32);
    const foci_status status = foci_array_to_i32(a, i32);
    MUST(status == FOCI_OK || status == FOCI_ERR_ARG);
    free(f32);
    free(i32);
}

/* The copy has exactly `size` bytes, and the reader owns nothing of it. */
static inline void fuzz_read(foci_status (*read)(struct foci_file *),
                             const unsigned char *map, size_t size)
{
    struct foci_file f = {
        .ctx = fuzz_ctx(), .path = "input", .map = map, .bytes = size
    };
    const foci_status status = read(&f);

    if (status == FOCI_OK)
        for (int i = 0; i < f.n; i++)
            fuzz_array(&f, &f.arrays[i]);
    else
        fuzz_message(f.ctx);
    ctx_free(f.ctx, f.arrays, (size_t)f.cap, sizeof *f.arrays);
    json_decref(f.header);
}

#endif
