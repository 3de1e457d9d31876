/* tensors.c -- arrays of the command line: from their files, with their shapes. */
#include <stdlib.h>
#include <string.h>

#include "cli/array_file.h"
#include "cli/tensors.h"

const char *shape_text(int n_dims, const int64_t *shape, const char *any,
                       char text[SHAPE_TEXT])
{
    size_t n = 0;
    snprintf(text, SHAPE_TEXT, "a number");
    for (int i = 0; i < n_dims && n < SHAPE_TEXT; i++) {
        const char *by = i ? "x" : "";
        n += (size_t)(shape[i] < 0
                          ? snprintf(text + n, SHAPE_TEXT - n, "%s%c", by, any[i])
                          : snprintf(text + n, SHAPE_TEXT - n, "%s%lld", by,
                                     (long long)shape[i]));
    }
    return text;
}

static void shape_of(const foci_array *in, struct array *out)
{
    out->n_dims = in->n_dims;
    memcpy(out->shape, in->shape, sizeof out->shape);
    out->count = in->count;
}

void array_of(const foci_array *in, struct array *out)
{
    shape_of(in, out);
    out->data = need((size_t)in->count, sizeof *out->data);
    foci_array_to_f32(in, out->data);
}

static int ints_of(const struct args *a, const char *shown, const foci_array *in,
                   struct array *out)
{
    shape_of(in, out);
    out->ints = need((size_t)in->count, sizeof *out->ints);
    return foci_array_to_i32(in, out->ints)
               ? failure(a,
                         "%s: holds a value that is not a whole number within 32 bits",
                         shown)
               : EXIT_OK;
}

static int load(const struct args *a, foci_ctx *ctx, const char *option,
                const char *name, const char *path, bool ints, struct array *out)
{
    struct array_file f;
    foci_array        in = { FOCI_SIZED(foci_array) };
    char              prefix[160];

    *out = (struct array){ .option = option, .path = path };
    if (strcmp(option, "param") == 0)
        snprintf(prefix, sizeof prefix, "--param %s=", name);
    else
        snprintf(prefix, sizeof prefix, "--%s ", option);
    int       code = array_file_open(a, ctx, prefix, path, &f);
    const int i = code ? -1 : array_file_find(&f, name);
    if (!code) code = i < 0 ? EXIT_FAILED : array_file_get(&f, i, &in);
    if (!code && ints)
        code = ints_of(a, f.shown, &in, out);
    else if (!code)
        array_of(&in, out);
    array_file_close(&f);
    return code;
}

int array_load(const struct args *a, foci_ctx *ctx, const char *option,
               const char *name, const char *path, struct array *out)
{
    return load(a, ctx, option, name, path, false, out);
}

int array_load_ints(const struct args *a, foci_ctx *ctx, const char *option,
                    const char *name, const char *path, struct array *out)
{
    return load(a, ctx, option, name, path, true, out);
}

void array_free(struct array *x)
{
    free(x->data);
    free(x->ints);
}

int array_axes(const struct args *a, const struct array *x, const char *accepted,
               int64_t axes[4])
{
    char text[SHAPE_TEXT];

    if (x->n_dims < 2 || x->n_dims > 4)
        return failure(a, "--%s %s: its shape is %s; accepted are %s", x->option,
                       x->path, shape_text(x->n_dims, x->shape, "", text), accepted);
    for (int i = 0; i < 4; i++)
        axes[i] = i < 4 - x->n_dims ? 1 : x->shape[i - 4 + x->n_dims];
    return EXIT_OK;
}

void to_bf16(const float *in, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        const bool     nan = (bits & 0x7fffffff) > 0x7f800000;
        const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
        out[i] = (uint16_t)(nan ? bits >> 16 | 64 : rounded >> 16);
    }
}

void from_bf16(const uint16_t *in, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}
