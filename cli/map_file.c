/* map_file.c -- weights as they are in a file. */
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"

static int load(const struct map *m, const char *option, struct array *x,
                int64_t axes[4])
{
    const char *path = opt_text(m->a, option);
    char        text[SHAPE_TEXT];

    int code = array_load(m->a, m->ctx, option, "weights", path, x);
    if (!code) code = array_axes(m->a, x, "N x N and H x N x N", axes);
    if (code) return code;
    if (axes[0] != 1 || axes[1] < 1 || axes[1] > MAP_MOST_HEADS || axes[2] < 1 ||
        axes[3] < 1 || axes[2] > MAP_MOST_LEN || axes[3] > MAP_MOST_LEN ||
        axes[1] * axes[2] * axes[3] > MAP_MOST_PAIRS)
        return failure(m->a,
                       "--%s %s: its shape is %s; a map takes one sequence, up to %d "
                       "heads, 1 to %d queries and keys, and %d pairs in all",
                       option, path, shape_text(x->n_dims, x->shape, "", text),
                       MAP_MOST_HEADS, MAP_MOST_LEN, MAP_MOST_PAIRS);
    return EXIT_OK;
}

/* Take the weights of another file away. */
static int subtract(const struct map *m, const struct array *x, const int64_t axes[4],
                    float *weights)
{
    struct array other = { 0 };
    int64_t      others[4];
    char         a[SHAPE_TEXT], b[SHAPE_TEXT];

    int code = load(m, "minus", &other, others);
    if (!code && memcmp(axes, others, sizeof others) != 0)
        code = failure(m->a,
                       "--minus %s: its shape is %s; --weights %s of %s needs the "
                       "same",
                       other.path, shape_text(other.n_dims, other.shape, "", a),
                       x->path, shape_text(x->n_dims, x->shape, "", b));
    for (int64_t i = 0; i < x->count && !code; i++)
        weights[i] -= other.data[i];
    array_free(&other);
    return code;
}

static char *join(const char *a, const char *between, const char *b)
{
    const size_t bytes = strlen(a) + strlen(between) + strlen(b) + 1;
    char        *text = need(bytes, 1);

    snprintf(text, bytes, "%s%s%s", a, between, b);
    return text;
}

int map_file(struct map *m)
{
    const char  *path = opt_text(m->a, "weights"), *minus = opt_text(m->a, "minus");
    struct array x = { 0 };
    int64_t      axes[4];
    char         about[128];

    int code = load(m, "weights", &x, axes);
    if (!code) {
        struct map_attention *a = map_add(m, axes[1], axes[2], axes[3]);
        memcpy(a->weights, x.data, (size_t)x.count * sizeof *a->weights);
        a->labels = need((size_t)a->heads, sizeof *a->labels);
        for (int64_t h = 0; h < a->heads; h++)
            a->labels[h] = join(minus ? "difference" : "weights", "", "");
        if (minus) code = subtract(m, &x, axes, a->weights);
    }
    array_free(&x);
    if (code) return code;
    snprintf(about, sizeof about, "%lld head%s, %lld x %lld, as in the file%s",
             (long long)axes[1], axes[1] > 1 ? "s" : "", (long long)axes[2],
             (long long)axes[3], minus ? "s" : "");
    m->difference = minus != NULL;
    m->title = join(path, minus ? " minus " : "", minus ? minus : "");
    m->about = join(about, "", "");
    m->facts = json_pack("{s:s}", "file", path);
    if (minus) json_object_set_new(m->facts, "minus", json_string(minus));
    return EXIT_OK;
}
