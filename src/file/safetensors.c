/* safetensors.c -- read .safetensors files.
 *
 *     length header data
 *
 * `length` has 8 bytes, least first.  The header is a JSON object, padded with
 * blanks: names to {"dtype", "shape", "data_offsets": [begin, end]}, offsets from
 * the start of the data, and "__metadata__" to texts.  As the format demands, the
 * tensors cover the data without holes or overlap, and a name occurs once.
 *
 * github.com/huggingface/safetensors, README, "Format".
 */
#include <stdlib.h>
#include <string.h>

#include "file/format.h"

enum { MAX_HEADER = 100000000 }; /* the format's own limit */

static const struct {
    const char *name;
    foci_eltype type;
} known[] = {
    { "BOOL", FOCI_ELTYPE_BOOL }, { "I8", FOCI_ELTYPE_I8 },
    { "U8", FOCI_ELTYPE_U8 },     { "I16", FOCI_ELTYPE_I16 },
    { "U16", FOCI_ELTYPE_U16 },   { "I32", FOCI_ELTYPE_I32 },
    { "U32", FOCI_ELTYPE_U32 },   { "I64", FOCI_ELTYPE_I64 },
    { "U64", FOCI_ELTYPE_U64 },   { "F16", FOCI_ELTYPE_F16 },
    { "BF16", FOCI_ELTYPE_BF16 }, { "F32", FOCI_ELTYPE_F32 },
    { "F64", FOCI_ELTYPE_F64 },
};

static bool find_dtype(const char *text, foci_eltype *type)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text, known[i].name) != 0) continue;
        *type = known[i].type;
        return true;
    }
    return false;
}

const char *safetensors_dtype(foci_eltype type)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == type) return known[i].name;
    return NULL;
}

static foci_status read_shape(struct foci_file *f, const json_t *shape, foci_array *a)
{
    if (!json_is_array(shape) || json_array_size(shape) > FOCI_MAX_DIMS)
        return file_fail(f->ctx, f->path,
                         "shape of '%s' is not a list of up to 8 lengths", a->name);
    a->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < a->n_dims; i++) {
        const json_t *n = json_array_get(shape, (size_t)i);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return file_fail(f->ctx, f->path,
                             "shape of '%s' has a length that is not a whole number "
                             "from 0 to 2^63-1",
                             a->name);
        a->shape[i] = json_integer_value(n);
    }
    return FOCI_OK;
}

/* data_offsets, checked against the data there is and the size of the shape. */
static foci_status read_offsets(struct foci_file *f, const json_t *offsets,
                                const unsigned char *data, foci_array *a)
{
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    const size_t  cap = (size_t)(f->map + f->bytes - data);
    size_t        bytes;

    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return file_fail(f->ctx, f->path,
                         "data_offsets of '%s' are not two whole numbers", a->name);
    const json_int_t begin = json_integer_value(b), end = json_integer_value(e);
    if (begin < 0 || end < begin || (uint64_t)end > cap)
        return file_fail(
            f->ctx, f->path,
            "data_offsets of '%s' are [%lld, %lld]; accepted are a beginning "
            "and an end from 0 to %zu, the bytes of data",
            a->name, (long long)begin, (long long)end, cap);
    if (!shape_size(a->n_dims, a->shape, a->type, &a->count, &bytes))
        return file_fail(f->ctx, f->path,
                         "the shape of '%s' needs more bytes than can be counted",
                         a->name);
    if (bytes != (size_t)(end - begin))
        return file_fail(f->ctx, f->path,
                         "the shape of '%s' needs %zu bytes but its data_offsets span "
                         "%lld",
                         a->name, bytes, (long long)(end - begin));
    a->data = data + begin;
    return FOCI_OK;
}

static foci_status read_tensor(struct foci_file *f, const json_t *entry,
                               const unsigned char *data, foci_array *a)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));

    if (!dtype) return file_fail(f->ctx, f->path, "'%s' has no dtype", a->name);
    if (!find_dtype(dtype, &a->type))
        return file_fail(f->ctx, f->path,
                         "dtype of '%s' is %s; accepted are F64 F32 F16 BF16 I64 I32 "
                         "I16 I8 U64 U32 U16 U8 BOOL",
                         a->name, dtype);
    a->swapped = eltype_bytes(a->type) > 1 && !host_is_little();
    TRY(read_shape(f, json_object_get(entry, "shape"), a));
    return read_offsets(f, json_object_get(entry, "data_offsets"), data, a);
}

static foci_status check_metadata(struct foci_file *f, json_t *metadata)
{
    const char *key;
    json_t     *value;

    if (!json_is_object(metadata))
        return file_fail(f->ctx, f->path, "__metadata__ is not an object of texts");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return file_fail(
        f->ctx, f->path, "__metadata__ '%s' is not a text", key);
    return FOCI_OK;
}

static int by_data(const void *x, const void *y)
{
    const foci_array    *a = x, *b = y;
    const unsigned char *p = a->data, *q = b->data;
    if (p != q) return p < q ? -1 : 1;
    return (a->count > b->count) - (a->count < b->count); /* empty ones first */
}

/* Sort by place and demand that each begins where the one before it ends. */
static foci_status check_cover(struct foci_file *f, const unsigned char *data)
{
    const unsigned char *at = data;

    if (f->n) qsort(f->arrays, (size_t)f->n, sizeof *f->arrays, by_data);
    for (int i = 0; i < f->n; i++) {
        const foci_array *a = &f->arrays[i];
        if (a->data != (const void *)at)
            return file_fail(
                f->ctx, f->path,
                "'%s' begins at byte %td of the data; what stands before it "
                "ends at %td",
                a->name, (const unsigned char *)a->data - data, at - data);
        at += (size_t)a->count * eltype_bytes(a->type);
    }
    if (at != f->map + f->bytes)
        return file_fail(f->ctx, f->path,
                         "the tensors take %td bytes of data but the file has %td",
                         at - data, f->map + f->bytes - data);
    return FOCI_OK;
}

static foci_status read_tensors(struct foci_file *f, const unsigned char *data)
{
    const size_t most = json_object_size(f->header);
    const char  *name;
    json_t      *entry;

    if (json_object_get(f->header, "__metadata__"))
        TRY(check_metadata(f, json_object_get(f->header, "__metadata__")));
    if (most) f->arrays = ctx_alloc(f->ctx, most, sizeof *f->arrays);
    if (most && !f->arrays) return FOCI_ERR_MEMORY;
    f->cap = (int)most; /* fewer than the header has bytes */

    json_object_foreach(f->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        foci_array *a = &f->arrays[f->n++];
        a->size = sizeof *a;
        a->name = name;
        TRY(read_tensor(f, entry, data, a));
    }
    return FOCI_OK;
}

foci_status safetensors_read(struct foci_file *f)
{
    uint64_t     len = 0;
    json_error_t error;

    for (int i = 0; i < 8; i++)
        len |= (uint64_t)f->map[i] << (8 * i);
    if (len > MAX_HEADER || len > f->bytes - 8)
        return file_fail(f->ctx, f->path,
                         "the header takes %llu bytes but the file has %zu more, and "
                         "%d are allowed",
                         (unsigned long long)len, f->bytes - 8, MAX_HEADER);

    f->header = json_loadb((const char *)f->map + 8, (size_t)len,
                           JSON_REJECT_DUPLICATES, &error);
    if (!f->header && !*error.text) /* without memory jansson has nothing to say */
        return ctx_fail(f->ctx, FOCI_ERR_MEMORY, "no memory for the header of %.200s",
                        f->path);
    if (!f->header)
        return file_fail(f->ctx, f->path, "the header is not JSON: %s at byte %d",
                         error.text, error.position);

    const unsigned char *data = f->map + 8 + len;
    TRY(read_tensors(f, data));
    return check_cover(f, data);
}
