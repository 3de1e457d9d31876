/* generate.c -- text that a model goes on with: tokens drawn one by one. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/model.h"

struct choice {
    double  p;
    int32_t token;
};

/* The likeliest first; equals by their number, so that the order is one. */
static int by_share(const void *x, const void *y)
{
    const struct choice *a = x, *b = y;
    if (a->p != b->p) return a->p < b->p ? 1 : -1;
    return (a->token > b->token) - (a->token < b->token);
}

/* How many of the n sorted choices are drawn from, and what they sum to. */
static int64_t cut(const struct choice *all, int64_t n, const foci_sample_options *o,
                   double *sum)
{
    const int64_t most = o->top_k ? min64(o->top_k, n) : n;
    double        whole = 0;
    int64_t       kept = 0;

    for (int64_t i = 0; i < most; i++)
        whole += all[i].p;
    for (*sum = 0; kept < most; kept++) {
        if (kept && o->top_p > 0 && *sum >= o->top_p * whole) break;
        *sum += all[kept].p;
    }
    return kept;
}

static int32_t draw(const struct kernels *k, float *logits, struct choice *all,
                    int64_t n, const foci_sample_options *o, double uniform)
{
    struct loss_row row = { .label = 0 };
    double          sum;

    k->loss_row(NULL, FOCI_F32, logits, (int)n, &row);
    const int best = row.best;
    if (o->temperature <= 0) return best;
    for (int64_t i = 0; i < n; i++)
        all[i] =
            (struct choice){ exp((double)(logits[i] - logits[best]) / o->temperature),
                             (int32_t)i };
    qsort(all, (size_t)n, sizeof *all, by_share);
    const int64_t kept = cut(all, n, o, &sum);
    double        at = uniform * sum;
    for (int64_t i = 0; i < kept; i++) {
        at -= all[i].p;
        if (at <= 0) return all[i].token;
    }
    return all[kept - 1].token;
}

struct writing {
    foci_model         *m;
    foci_sequences     *s;
    foci_sample_options o;
    float              *logits;
    struct choice      *choices;
    int32_t            *seen;  /* [cap] the tokens that the sequence has seen */
    int32_t            *words; /* [cap] of the tokens of a step */
    foci_word_state     at;
    int64_t             n, cap;
};

static foci_status step(struct writing *w, const int32_t *ids, int64_t n)
{
    TRY(words_find(w->m, w->o.tokenizer, ids, n, &w->at, w->words));
    return foci_sequences_step(w->s, &(int32_t){ (int32_t)n }, ids, w->words, w->logits);
}

/* Where the context is full the sequence begins anew with its second half. */
static foci_status append(struct writing *w, const int32_t *ids, int64_t n)
{
    const int64_t context = w->cap;

    if (w->n + n > context) {
        const int64_t keep = min64(max64(context / 2, 1) - 1, w->n);
        memmove(w->seen, w->seen + w->n - keep, (size_t)keep * sizeof *w->seen);
        w->n = keep;
        w->at = (foci_word_state){ FOCI_SIZED(foci_word_state) };
        TRY(foci_sequences_start(w->s, NULL));
        const int64_t take = min64(n, context - keep);
        memcpy(w->seen + keep, ids + n - take, (size_t)take * sizeof *ids);
        w->n += take;
        return step(w, w->seen, w->n);
    }
    memcpy(w->seen + w->n, ids, (size_t)n * sizeof *ids);
    w->n += n;
    return step(w, ids, n);
}

static foci_status write_tokens(struct writing *w, const int32_t *ids, int64_t n,
                                int64_t count, foci_token_fn token, void *user)
{
    const int64_t vocab = w->m->config.vocab;
    struct rng    r;

    rng_seed(&r, w->o.seed, 0);
    const int64_t take = min64(n, max64(w->cap - 1, 1));
    TRY(append(w, ids + n - take, take));
    for (int64_t i = 0; i < count; i++) {
        const int32_t next = draw(&w->m->ctx->kernels, w->logits, w->choices, vocab,
                                  &w->o, rng_uniform(&r));
        if (token(user, next) || i + 1 == count) break;
        TRY(append(w, &next, 1));
    }
    return FOCI_OK;
}

static foci_status open_writing(struct writing *w)
{
    const size_t vocab = (size_t)w->m->config.vocab;

    w->cap = model_last(w->m)->context;
    w->logits = ctx_alloc(w->m->ctx, vocab, sizeof *w->logits);
    w->choices = ctx_alloc(w->m->ctx, vocab, sizeof *w->choices);
    w->seen = ctx_alloc(w->m->ctx, (size_t)w->cap, sizeof *w->seen);
    w->words = ctx_alloc(w->m->ctx, (size_t)w->cap, sizeof *w->words);
    if (!w->logits || !w->choices || !w->seen || !w->words) return FOCI_ERR_MEMORY;
    return foci_sequences_create(w->m, 1, &w->s);
}

static void close_writing(struct writing *w)
{
    foci_ctx    *ctx = w->m->ctx;
    const size_t vocab = (size_t)w->m->config.vocab;

    if (w->logits) ctx_free(ctx, w->logits, vocab, sizeof *w->logits);
    if (w->choices) ctx_free(ctx, w->choices, vocab, sizeof *w->choices);
    if (w->seen) ctx_free(ctx, w->seen, (size_t)w->cap, sizeof *w->seen);
    if (w->words) ctx_free(ctx, w->words, (size_t)w->cap, sizeof *w->words);
    foci_sequences_free(w->s);
}

foci_status foci_generate(foci_model *model, const int32_t *ids, int64_t n,
                          int64_t count, const foci_sample_options *options,
                          foci_token_fn token, void *user)
{
    struct writing w = { .m = model, .at = { FOCI_SIZED(foci_word_state) } };

    if (!model) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_generate: the model is NULL");
    if (model->config.task != FOCI_MODEL_LM)
        return ctx_fail(model->ctx, FOCI_ERR_UNSUP, "only a model of task lm generates");
    if (n < 1 || !ids || count < 0 || !token)
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "a model goes on from 1 token or more, and tells somebody");
    if (options)
        TRY(sized_in(model->ctx, "foci_sample_options", &w.o, options, sizeof w.o));
    if (!(w.o.temperature >= 0) || w.o.top_k < 0 || !(w.o.top_p >= 0 && w.o.top_p <= 1))
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "temperature and top_k are 0 or more, top_p is 0 to 1");
    TRY(words_check(model, w.o.tokenizer));
    foci_status status = open_writing(&w);
    if (!status) status = write_tokens(&w, ids, n, count, token, user);
    close_writing(&w);
    return status;
}
