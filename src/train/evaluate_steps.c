/* evaluate_steps.c -- the loss of a model over a data set by decoding, from label to label. */
#include <string.h>

#include "train/evaluate.h"

enum { ROWS_AT_ONCE = 4096 };

/* A batch on its way: all of its sequences have got as many tokens. */
struct stepping {
    struct evaluation e;
    foci_model       *m;
    foci_sequences   *s;
    int64_t           n;      /* sequences */
    int64_t          *next;   /* [n] number of the next label of each, as in label_at */
    float            *logits; /* [n][vocab] */
    int32_t          *tokens; /* [n] of a step */
    int32_t          *ids;    /* [2][n * most] ids, then words, of a step */
    int64_t           most;   /* tokens of a step */
    uint8_t          *labels; /* [n] whether there were any */
    uint8_t          *wrong;  /* [n] whether one was not the likeliest */
};

static void close_rows(struct stepping *x)
{
    foci_ctx    *ctx = x->m->ctx;
    const size_t n = (size_t)x->n;

    foci_sequences_free(x->s);
    if (x->logits)
        ctx_free(ctx, x->logits, n, (size_t)x->m->config.vocab * sizeof *x->logits);
    if (x->tokens) ctx_free(ctx, x->tokens, n, sizeof *x->tokens);
    if (x->ids) ctx_free(ctx, x->ids, 2 * n * (size_t)x->most, sizeof *x->ids);
    if (x->labels) ctx_free(ctx, x->labels, n, 1);
    if (x->wrong) ctx_free(ctx, x->wrong, n, 1);
    if (x->next) ctx_free(ctx, x->next, n, sizeof *x->next);
    *x = (struct stepping){ .e = x->e, .m = x->m };
}

static foci_status open_rows(struct stepping *x, int64_t n)
{
    foci_ctx *ctx = x->m->ctx;

    close_rows(x);
    TRY(foci_sequences_create(x->m, n, &x->s));
    x->n = n;
    x->most = max64(1, ROWS_AT_ONCE / n);
    x->logits =
        ctx_alloc(ctx, (size_t)n, (size_t)x->m->config.vocab * sizeof *x->logits);
    x->tokens = ctx_alloc(ctx, (size_t)n, sizeof *x->tokens);
    x->ids = ctx_alloc(ctx, 2 * (size_t)n * (size_t)x->most, sizeof *x->ids);
    x->labels = ctx_alloc(ctx, (size_t)n, 1);
    x->wrong = ctx_alloc(ctx, (size_t)n, 1);
    x->next = ctx_alloc(ctx, (size_t)n, sizeof *x->next);
    const bool all =
        x->logits && x->tokens && x->ids && x->labels && x->wrong && x->next;
    return all ? FOCI_OK : FOCI_ERR_MEMORY;
}

/* Whether something is asked at this place. */
static bool asked(const foci_batch *b, int64_t at)
{
    for (int64_t r = 0; r < b->batch; r++)
        if (b->labels[r * b->len + at] >= 0) return true;
    return false;
}

/* Places `at` to `end` of a row of the batch, side by side with those of the other rows. */
static void gather(const foci_batch *b, const int32_t *rows, int64_t at, int64_t end,
                   int32_t *to)
{
    for (int64_t r = 0; r < b->batch; r++, to += end - at)
        memcpy(to, rows + r * b->len + at, (size_t)(end - at) * sizeof *to);
}

/* Tokens `at` to `end`; logits after the last ones, where they are wanted. */
static foci_status step(struct stepping *x, const foci_batch *b, int64_t at,
                        int64_t end, bool wanted)
{
    int32_t *words = b->words ? x->ids + x->n * x->most : NULL;

    gather(b, b->ids, at, end, x->ids);
    if (words) gather(b, b->words, at, end, words);
    for (int64_t r = 0; r < x->n; r++)
        x->tokens[r] = (int32_t)(end - at);
    return foci_sequences_step(x->s, end - at > 1 ? x->tokens : NULL, x->ids, words,
                               wanted ? x->logits : NULL);
}

static void judge(struct stepping *x, const foci_batch *b, int64_t at)
{
    const int64_t vocab = x->m->config.vocab;
    foci_loss    *loss = &x->e.loss;

    for (int64_t r = 0; r < x->n; r++) {
        struct loss_row row = { .label = b->labels[r * b->len + at], .scale = 1 };
        if (row.label < 0) continue;
        x->m->ctx->kernels.loss_row(NULL, FOCI_F32, x->logits + r * vocab, (int)vocab,
                                    &row);
        loss->sum += row.loss;
        loss->labels++;
        loss->hits += row.best == row.label;
        x->labels[r] = 1;
        x->wrong[r] |= row.best != row.label;
        const int64_t number = x->next[r]++;
        if (!x->e.labels) continue;
        x->e.nats[number] = (float)row.loss;
        x->e.best[number] = row.best;
    }
}

/* Where nothing is carried, a memory begins as rows of zeros, and a state as none. */
static foci_status check_memory(foci_model *m)
{
    foci_carry *carry = NULL;

    TRY(foci_carry_create(m, 1, &carry));
    if (!carry) return FOCI_OK;
    foci_carry_free(carry);
    return ctx_fail(
        m->ctx, FOCI_ERR_UNSUP,
        "a model with a memory of the text before (xl) is evaluated by whole "
        "sequences only");
}

static foci_status evaluate_steps_check(const foci_model *m, const foci_batch *b)
{
    if (!b->ids || !b->labels || b->docs)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "only texts, one in a row, are evaluated token by token");
    for (int64_t i = 0; i < b->n_labels; i++)
        if (b->labels[b->label_at[i]] >= m->config.vocab)
            return ctx_fail(m->ctx, FOCI_ERR_ARG, "label %d: the model has %lld tokens",
                            b->labels[b->label_at[i]], (long long)m->config.vocab);
    return FOCI_OK;
}

/* Everything of a batch begins. */
static foci_status begin(struct stepping *x, const foci_batch *b)
{
    TRY(evaluate_steps_check(x->m, b));
    if (b->batch != x->n) TRY(open_rows(x, b->batch));
    TRY(evaluation_reserve(&x->e, b->n_labels));
    TRY(foci_sequences_extend(x->s, max64(b->len, x->m->config.context)));
    TRY(foci_sequences_start(x->s, NULL));
    memset(x->labels, 0, (size_t)x->n);
    memset(x->wrong, 0, (size_t)x->n);
    for (int64_t r = 0, i = 0; r < x->n; r++) {
        while (i < b->n_labels && b->label_at[i] < r * b->len)
            i++;
        x->next[r] = i;
    }
    return FOCI_OK;
}

static foci_status add_batch(struct stepping *x, const foci_batch *b)
{
    TRY(begin(x, b));
    for (int64_t at = 0, end; at < b->len; at = end) {
        const int64_t most = min64(b->len, at + x->most);
        for (end = at + 1; end < most && !asked(b, end - 1);)
            end++;
        const bool wanted = asked(b, end - 1);
        TRY(step(x, b, at, end, wanted));
        if (wanted) judge(x, b, end - 1);
    }
    for (int64_t r = 0; r < x->n; r++) {
        x->e.loss.sequences += x->labels[r];
        x->e.loss.exact += x->labels[r] && !x->wrong[r];
    }
    x->e.characters += b->n_chars;
    x->e.words += b->n_words;
    return FOCI_OK;
}

static foci_status pass_over(struct stepping *x, foci_data *data, int64_t batches)
{
    bool ends = false;

    TRY(foci_data_rewind(data, 0));
    for (int64_t i = 0; !ends && (!batches || i < batches); i++) {
        foci_batch b = { FOCI_SIZED(foci_batch) };
        TRY(foci_data_next(data, &b));
        if (!b.batch) break;
        TRY(add_batch(x, &b));
        ends = x->e.labels && x->e.labels(x->e.user, &b, x->e.nats, x->e.best);
    }
    return FOCI_OK;
}

foci_status foci_evaluate_steps(foci_model *model, foci_data *data, int64_t batches,
                                foci_labels_fn labels, void *user, foci_scores *scores)
{
    struct stepping x = { .e = { .m = model, .labels = labels, .user = user },
                          .m = model };

    if (!model || !data)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_evaluate_steps: the %s NULL",
                        model ? "data are" : "model is");
    if (model->config.task != FOCI_MODEL_LM)
        return ctx_fail(model->ctx, FOCI_ERR_UNSUP,
                        "only a model of task lm is evaluated token by token");
    TRY(sized_check(model->ctx, "foci_scores", scores, sizeof *scores));
    TRY(check_memory(model));
    const foci_status status = pass_over(&x, data, batches);
    close_rows(&x);
    evaluation_free(&x.e);
    TRY(status);
    return evaluation_scores(&x.e, scores);
}
