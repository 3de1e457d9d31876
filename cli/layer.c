/* layer.c -- problems of layers as text: the text of a plan's problem with a width before the
 * c. */
#include <stdlib.h>
#include <string.h>

#include "cli/layer.h"

/* Heads of a gated unit are so wide, if nothing is said. */
enum { GAU_DIM = 128 };

const char *layer_kind_name(foci_layer_kind kind)
{
    static const char *const names[] = { "attention", "gau", "conv" };
    return names[kind];
}

bool layer_has_width(const char *problem) { return strchr(problem, 'w') != NULL; }

static int64_t read_width(const char *digits, size_t n)
{
    int64_t width = 0;

    for (size_t i = 0; i < n; i++)
        if (width <= LAYER_WIDEST) width = 10 * width + (digits[i] - '0');
    return width;
}

/* The text without its width, with a d that stands in for one left out; to be freed. */
static char *without_width(const char *text, size_t at, const char *rest)
{
    const size_t cap = strlen(text) + 3;
    const size_t v = strcspn(text, "v"), cut = v < at ? v : at;
    char        *plain = need(cap, 1);

    if (memchr(text, 'd', at))
        snprintf(plain, cap, "%.*s%s", (int)at, text, rest);
    else
        snprintf(plain, cap, "%.*sd1%.*s%s", (int)cut, text, (int)(at - cut),
                 text + cut, rest);
    return plain;
}

/* Widths that the layer will choose. */
static void fill_in(const char *text, size_t at, foci_problem *p,
                    foci_layer_problem *layer)
{
    const bool gau = layer->kind == FOCI_LAYER_GAU;

    layer->head_dim = memchr(text, 'd', at) ? p->dim_qk : 0;
    layer->value_dim = memchr(text, 'v', at) ? p->dim_v : 0;
    layer->len_source = memchr(text, 'm', at) ? p->len_k : 0;
    p->dim_x = layer->width;
    if (!layer->head_dim) p->dim_qk = gau ? GAU_DIM : layer->width / p->heads;
    if (!p->dim_qk) p->dim_qk = 1; /* the layer refuses that with its reason */
    if (!layer->value_dim) p->dim_v = gau ? 2 * layer->width : p->dim_qk;
}

int layer_parse(const struct args *a, foci_ctx *ctx, const char *text, foci_problem *p,
                foci_layer_problem *layer)
{
    const size_t at = strcspn(text, "w");
    const char  *digits = text + at + 1;
    const size_t n = strspn(digits, "0123456789");

    layer->width = read_width(digits, n);
    if (layer->width < 1 || layer->width > LAYER_WIDEST)
        return usage_error(a,
                           "problem \"%s\", column %d: w, the width of a layer, goes "
                           "from 1 to %d",
                           text, (int)at + 1, LAYER_WIDEST);
    char             *plain = without_width(text, at, digits + n);
    const foci_status status = foci_problem_parse(ctx, plain, p);
    free(plain);
    if (status) return library_error(a, ctx, status, text);
    fill_in(text, at, p, layer);
    layer->flags = p->flags;
    layer->batch = p->batch;
    layer->len = p->len_q;
    layer->heads = p->heads;
    layer->kv_heads = p->kv_heads;
    return EXIT_OK;
}

char *layer_problem_text(const foci_layer *layer)
{
    enum { CAP = 160 };
    foci_layer_problem l = { FOCI_SIZED(foci_layer_problem) };
    foci_problem       p = { FOCI_SIZED(foci_problem) };
    char              *text = need(CAP, 1);

    foci_layer_get_problem(layer, &l);
    foci_plan_get_problem(foci_layer_plan(layer), &p);
    p.flags &= ~(uint32_t)FOCI_FLAG_CAUSAL;
    if (p.kv_heads == p.heads) p.kv_heads = 0;
    const int n = foci_problem_print(&p, text, CAP);
    snprintf(text + n, CAP - (size_t)n, "w%lld%s", (long long)l.width,
             l.flags & FOCI_FLAG_CAUSAL ? "c" : "");
    return text;
}

char *layer_text(const foci_layer *layer)
{
    const int len = foci_layer_describe(layer, NULL, 0);
    char     *text = need((size_t)(len < 0 ? 0 : len) + 1, 1);

    if (len > 0) foci_layer_describe(layer, text, (size_t)len + 1);
    return text;
}
