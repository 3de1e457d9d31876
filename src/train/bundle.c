/* bundle.c -- arrays and texts in one .safetensors file, with a checksum over all of it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/folder.h"

/* Every step is a bijection of the sum for a given word and the other way round, so that
 * two files that differ in one word never have the same sum. */
uint64_t checksum_bytes(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    while (bytes) {
        const size_t n = bytes < 8 ? bytes : 8;
        uint64_t     word = 0;
        memcpy(&word, p, n);
        sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 32;
        p += n;
        bytes -= n;
    }
    return sum;
}

static uint64_t checksum_text(uint64_t sum, const char *text)
{
    return checksum_bytes(sum, text, strlen(text) + 1);
}

static uint64_t checksum_array(uint64_t sum, const foci_array *a)
{
    const int64_t head[2] = { a->type, a->n_dims };

    sum = checksum_text(sum, a->name);
    sum = checksum_bytes(sum, head, sizeof head);
    sum = checksum_bytes(sum, a->shape, (size_t)a->n_dims * sizeof *a->shape);
    return checksum_bytes(sum, a->data, (size_t)a->count * eltype_bytes(a->type));
}

static const char checksum_key[] = "foci.checksum";

/* In the order of the keys that jansson gives for a sorted text. */
static uint64_t checksum_metadata(uint64_t sum, const json_t *metadata)
{
    uint64_t    all = 0;
    const char *key;
    json_t     *value;

    json_object_foreach((json_t *)metadata, key, value)
    {
        if (strcmp(key, checksum_key) == 0) continue;
        all ^= checksum_text(checksum_text(1, key), json_string_value(value));
    }
    return checksum_bytes(sum, &all, sizeof all);
}

/*
 * Writing
 */

void bundle_begin(struct bundle *b, foci_ctx *ctx, int cap)
{
    const size_t n = (size_t)max64(cap, 1);

    *b = (struct bundle){ .ctx = ctx, .cap = (int)n };
    b->arrays = ctx_alloc(ctx, n, sizeof *b->arrays);
    b->names = ctx_alloc(ctx, n, sizeof *b->names);
    b->metadata = json_object();
    if (!b->arrays || !b->names) b->status = FOCI_ERR_MEMORY;
    if (!b->metadata)
        b->status = ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a header");
}

void bundle_end(struct bundle *b)
{
    if (b->arrays) ctx_free(b->ctx, b->arrays, (size_t)b->cap, sizeof *b->arrays);
    if (b->names) ctx_free(b->ctx, b->names, (size_t)b->cap, sizeof *b->names);
    json_decref(b->metadata);
}

void bundle_text(struct bundle *b, const char *key, const char *format, ...)
{
    char    text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!b->status && json_object_set_new(b->metadata, key, json_string(text)))
        b->status = ctx_fail(b->ctx, FOCI_ERR_MEMORY, "no memory for a header");
}

static foci_array *next(struct bundle *b, const char *format, va_list args)
{
    foci_array *a = &b->arrays[b->n];

    vsnprintf(b->names[b->n], sizeof *b->names, format, args);
    *a = (foci_array){ FOCI_SIZED(foci_array), .name = b->names[b->n] };
    b->n++;
    return a;
}

void bundle_add(struct bundle *b, foci_eltype type, const void *data, int64_t count,
                const char *format, ...)
{
    va_list args;

    if (b->status) return;
    va_start(args, format);
    foci_array *a = next(b, format, args);
    va_end(args);
    a->type = type;
    a->n_dims = 1;
    a->shape[0] = a->count = count;
    a->data = data;
}

static foci_array *named(struct bundle *b, const char *format, ...) PRINTF_LIKE(2, 3);
static foci_array *named(struct bundle *b, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    foci_array *a = next(b, format, args);
    va_end(args);
    return a;
}

void bundle_tensor(struct bundle *b, const struct model_tensor *t, const float *floats,
                   const char *prefix)
{
    if (b->status) return;
    foci_array *a = named(b, "%s%s", prefix, t->name);
    a->type = FOCI_ELTYPE_F32;
    a->n_dims = t->n_dims;
    memcpy(a->shape, t->shape, sizeof t->shape);
    a->count = t->count;
    a->data = floats + t->offset;
}

foci_status bundle_write(struct bundle *b, const char *path)
{
    uint64_t sum = 0;

    if (b->status) return b->status;
    for (int i = 0; i < b->n; i++)
        sum = checksum_array(sum, &b->arrays[i]);
    sum = checksum_metadata(sum, b->metadata);
    bundle_text(b, checksum_key, "%016" PRIx64, sum);
    if (b->status) return b->status;
    return safetensors_write(b->ctx, path, b->arrays, b->n, b->metadata);
}

/*
 * Reading
 */

const char *bundle_read_text(const foci_file *file, const char *key)
{
    const json_t *metadata = json_object_get(file->header, "__metadata__");
    return json_string_value(json_object_get(metadata, key));
}

bool bundle_read_int(const foci_file *file, const char *key, int64_t *value)
{
    const char *text = bundle_read_text(file, key);
    char       *end;

    if (!text || !*text) return false;
    *value = strtoll(text, &end, 10);
    return !*end;
}

bool bundle_read_real(const foci_file *file, const char *key, double *value)
{
    const char *text = bundle_read_text(file, key);
    char       *end;

    if (!text || !*text) return false;
    *value = strtod(text, &end);
    return !*end;
}

static foci_status check_sum(foci_ctx *ctx, const char *path, const foci_file *f)
{
    const json_t *metadata = json_object_get(f->header, "__metadata__");
    const char   *text = bundle_read_text(f, checksum_key);
    char          found[17];
    uint64_t      sum = 0;

    if (!text)
        return file_fail(ctx, path, "has no checksum: it is no file of a foci model");
    for (int i = 0; i < f->n; i++)
        sum = checksum_array(sum, &f->arrays[i]);
    sum = checksum_metadata(sum, metadata);
    snprintf(found, sizeof found, "%016" PRIx64, sum);
    if (strcmp(found, text) == 0) return FOCI_OK;
    return file_fail(ctx, path, "is damaged: its checksum is %s and the file says %.16s",
                     found, text);
}

foci_status bundle_open(foci_ctx *ctx, const char *path, foci_file **file)
{
    *file = NULL;
    foci_file  *f;
    foci_status status = foci_file_open(ctx, path, &f);

    if (status) return status;
    status = f->header ? check_sum(ctx, path, f)
                       : file_fail(ctx, path, "is no .safetensors file");
    if (status) {
        foci_file_free(f);
        return status;
    }
    *file = f;
    return FOCI_OK;
}

const foci_array *bundle_find(foci_ctx *ctx, const foci_file *file, foci_eltype type,
                              int64_t count, const char *name)
{
    for (int i = 0; i < file->n; i++) {
        const foci_array *a = &file->arrays[i];
        if (strcmp(a->name, name) != 0) continue;
        if (a->type == type && (count < 0 || a->count == count)) return a;
        file_fail(ctx, file->path,
                  "'%s' has %lld elements of %s; the model takes %lld of %s", name,
                  (long long)a->count, safetensors_dtype(a->type), (long long)count,
                  safetensors_dtype(type));
        return NULL;
    }
    file_fail(ctx, file->path, "has no '%s', which the model takes", name);
    return NULL;
}

foci_status bundle_read_tensor(foci_ctx *ctx, const foci_file *file,
                               const struct model_tensor *t, const char *prefix,
                               float *floats)
{
    char name[160];

    snprintf(name, sizeof name, "%s%s", prefix, t->name);
    const foci_array *a = bundle_find(ctx, file, FOCI_ELTYPE_F32, t->count, name);
    if (!a) return FOCI_ERR_FILE;
    if (a->n_dims != t->n_dims ||
        memcmp(a->shape, t->shape, (size_t)t->n_dims * sizeof *t->shape) != 0)
        return file_fail(ctx, file->path, "'%s' has another shape than in the model",
                         name);
    foci_array_to_f32(a, floats + t->offset);
    return FOCI_OK;
}
