/* run_finite.c -- results of `foci run` that hold infinities or NaN: a warning that says how
 * many and where the first is, and which of the inputs has such numbers too. */
#include <math.h>
#include <string.h>

#include "cli/run.h"

/* Numbers of a tensor in the dtype of the problem, or of floats. */
struct numbers {
    const void    *data;
    bool           bf16;
    int64_t        n;
    int            n_dims;
    const int64_t *shape;
};

static float number(const struct numbers *x, int64_t i)
{
    float value;

    if (!x->bf16) return ((const float *)x->data)[i];
    from_bf16((const uint16_t *)x->data + i, 1, &value);
    return value;
}

static int64_t count(const struct numbers *x, int64_t *first)
{
    int64_t n = 0;

    for (int64_t i = 0; x->data && i < x->n; i++)
        if (!isfinite(number(x, i)) && n++ == 0) *first = i;
    return n;
}

static struct numbers of_tensor(const struct run_verb *r, const struct run_tensor *t)
{
    return (struct numbers){ t->data, r->p.dtype == FOCI_BF16, tensor_count(t),
                             t->n_dims, t->shape };
}

/* "[1, 0, 3]" */
static const char *place(const struct numbers *x, int64_t at, char text[SHAPE_TEXT])
{
    int64_t index[4];
    size_t  n = 0;

    for (int d = x->n_dims - 1; d >= 0; d--) {
        index[d] = at % x->shape[d];
        at /= x->shape[d];
    }
    for (int d = 0; d < x->n_dims; d++)
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "%s%lld", d ? ", " : "[",
                              (long long)index[d]);
    snprintf(text + n, SHAPE_TEXT - n, "]");
    return text;
}

/* "; --q q.npy has 3 of them" for the first input that has some. */
static const char *blame(const struct run_verb *r, char text[512])
{
    const struct run_tensor *const inputs[] = { &r->q,      &r->k,      &r->v,   &r->x,
                                                &r->source, &r->memory, &r->dout };
    int64_t                        first;

    *text = '\0';
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs && !*text; i++) {
        const struct run_tensor *t = inputs[i];
        const struct numbers     x = of_tensor(r, t);
        const int64_t            n = count(&x, &first);
        if (n)
            snprintf(text, 512, "; --%s %s has %lld such numbers", t->file.option,
                     t->file.path, (long long)n);
    }
    return text;
}

static void look(const struct run_verb *r, const char *name, struct numbers x)
{
    int64_t first = 0;
    char    at[SHAPE_TEXT], inputs[512];

    const int64_t n = count(&x, &first);
    if (!n) return;
    json_object_set_new(r->not_finite, name, json_integer(n));
    note(r->a,
         "warning: %lld of %lld numbers of %s%s are not finite, the first %s at %s%s",
         (long long)n, (long long)x.n, *name == 'd' ? "" : "the ", name,
         isnan(number(&x, first)) ? "nan"
         : number(&x, first) > 0  ? "inf"
                                  : "-inf",
         place(&x, first, at), blame(r, inputs));
}

void run_warn_not_finite(struct run_verb *r)
{
    const struct run_tensor *const grads[] = { &r->dq, &r->dk, &r->dv, &r->dx,
                                               &r->dsource };
    static const char *const       names[] = { "dq", "dk", "dv", "dx", "dsource" };
    const int64_t shape[4] = { r->p.batch, r->p.heads, r->p.len_q, r->p.len_k };
    const int64_t pairs[4] = { r->p.mask_batch, r->p.mask_heads, r->p.len_q,
                               r->p.len_k };

    r->not_finite = json_object();
    look(r, "output", of_tensor(r, &r->o));
    look(r, "weights",
         (struct numbers){ r->weights, false, shape[0] * shape[1] * shape[2] * shape[3],
                           4, shape });
    for (int i = 0; i < 5; i++)
        look(r, names[i], of_tensor(r, grads[i]));
    look(r, "dbias",
         (struct numbers){ r->dbias, false, pairs[0] * pairs[1] * pairs[2] * pairs[3],
                           4, pairs });
    for (int i = 0; r->dout.data && i < run_n_params(r); i++) {
        char       name[160];
        foci_param p = { FOCI_SIZED(foci_param) };
        if (run_param(r, i, &p) || p.offset < 0 || p.keep != FOCI_KEEP_TRAINED)
            continue;
        snprintf(name, sizeof name, "d%s", p.name);
        look(r, name,
             (struct numbers){ r->dparams + p.offset, false, p.count, p.n_dims,
                               p.shape });
    }
}
