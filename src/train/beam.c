/* beam.c -- translation: the likeliest target of each source, by beam search.
 *
 * A hypothesis scores sum of log p / ((5 + length) / 6)^penalty, length with its end (Wu et
 * al., "Google's Neural Machine Translation System", 2016, without coverage).  Every source
 * keeps `beam` unfinished hypotheses; it is done when as many have ended, or no token may
 * follow.  Ties go to the earlier hypothesis and the smaller token. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/model.h"

enum { BLOCK = 32 }; /* logits that are compared at once */

struct hypothesis {
    double          score; /* sum of log p */
    int64_t         n;     /* tokens, without begin and end */
    foci_word_state at;    /* the words that they make */
};

struct beam_candidate {
    double  score;
    int64_t from;
    int32_t token;
};

struct beams {
    foci_model            *m;
    foci_translate_options o;
    foci_sequences        *s;
    int64_t                most;    /* tokens of a target */
    int64_t                sources; /* that are not done */
    int64_t               *number;  /* [batch] of each of them among all of the batch */
    struct hypothesis     *live;    /* [batch beam] */
    int32_t               *tokens;  /* [batch beam][most] */
    int32_t               *copied;  /* the same, while hypotheses change places */
    int32_t               *ids;     /* [batch beam] last tokens */
    int32_t               *words;   /* [batch beam] which words these belong to */
    int64_t               *from;
    float                 *logits; /* [batch beam][vocab] */
    struct beam_candidate *found;  /* [batch][2 beam] */
    int64_t               *n_found;
    double                *best;              /* [batch] normalised, of what ended */
    int32_t               *ended;             /* [batch][most] its tokens */
    int64_t               *ended_n, *n_ended; /* [batch] tokens; how many have ended */
    int64_t               *longest;           /* [batch] tokens that may be */
};

static double normalised(const struct beams *b, double score, int64_t n)
{
    return score / pow((5 + (double)n) / 6, b->o.penalty);
}

/* Hypotheses of one source: the 2 beam best continuations, in order. */
static void insert(struct beam_candidate *all, int64_t *n, int64_t most,
                   struct beam_candidate c)
{
    int64_t at = *n;

    if (*n == most && !(c.score > all[most - 1].score)) return;
    if (*n < most)
        ++*n;
    else
        at--;
    for (; at > 0 && c.score > all[at - 1].score; at--)
        all[at] = all[at - 1];
    all[at] = c;
}

/* A float that is less. */
static float below(double x) { return nextafterf((float)x, -INFINITY); }

static bool any_above(const float x[BLOCK], float limit)
{
    int any = 0;

    for (int i = 0; i < BLOCK; i++)
        any |= x[i] > limit;
    return any;
}

/* Continuations of hypothesis k, beside those of others that were found before. */
static void find(const struct beams *b, int64_t k, struct beam_candidate *all,
                 int64_t *n)
{
    const int64_t   most = 2 * b->o.beam, vocab = b->m->config.vocab;
    float *const    logits = b->logits + k * vocab;
    struct loss_row row = { .label = 0 };

    b->m->ctx->kernels.loss_row(NULL, FOCI_F32, logits, (int)vocab, &row);
    const double base = b->live[k].score - row.loss - (double)logits[0];
    for (int64_t v = 0; v < vocab; v += BLOCK) {
        const int64_t end = min64(v + BLOCK, vocab);
        if (*n == most && end - v == BLOCK &&
            !any_above(logits + v, below(all[most - 1].score - base)))
            continue;
        for (int64_t i = v; i < end; i++)
            insert(all, n, most,
                   (struct beam_candidate){ base + (double)logits[i], k, (int32_t)i });
    }
}

static void find_job(void *arg, int64_t source, int thread)
{
    struct beams          *b = arg;
    const int64_t          beam = b->o.beam;
    struct beam_candidate *all = b->found + source * 2 * beam;
    int64_t                n = 0;

    (void)thread;
    for (int64_t k = source * beam; k < (source + 1) * beam; k++)
        if (b->live[k].score > -INFINITY) find(b, k, all, &n);
    b->n_found[source] = n;
}

/* A hypothesis that has ended, or has no room left. */
static void end(struct beams *b, int64_t source, int64_t from, struct hypothesis h,
                bool closed)
{
    const int64_t number = b->number[source], n = h.n;
    const double  value = normalised(b, h.score, n + closed);

    b->n_ended[number]++;
    if (!(value > b->best[number])) return;
    b->best[number] = value;
    b->ended_n[number] = n;
    memcpy(b->ended + number * b->most, b->tokens + from * b->most,
           (size_t)n * sizeof *b->tokens);
}

/* Continuations become hypotheses; places that are left over are empty. */
static void advance(struct beams *b, int64_t source)
{
    const int64_t                beam = b->o.beam, first = source * beam;
    const struct beam_candidate *all = b->found + source * 2 * beam;
    struct hypothesis            old[64];
    int64_t                      kept = 0;

    memcpy(old, b->live + first, (size_t)beam * sizeof *old);
    for (int64_t i = 0; i < b->n_found[source] && kept < beam; i++) {
        const struct beam_candidate *c = &all[i];
        if (c->token == b->m->config.specials[FOCI_SPECIAL_EOS]) {
            if (i < beam)
                end(b, source, c->from,
                    (struct hypothesis){ c->score, old[c->from - first].n, { 0 } },
                    true);
            continue;
        }
        const struct hypothesis *was = &old[c->from - first];
        const int64_t            n = was->n, to = first + kept++;
        memcpy(b->copied + to * b->most, b->tokens + c->from * b->most,
               (size_t)n * sizeof *b->tokens);
        b->copied[to * b->most + n] = c->token;
        b->from[to] = c->from;
        b->ids[to] = c->token;
        b->live[to] = (struct hypothesis){ c->score, n + 1, was->at };
    }
    for (int64_t to = first + kept; to < first + beam; to++) {
        b->from[to] = first;
        b->ids[to] = all[0].token;
        b->live[to] = (struct hypothesis){ -INFINITY, 0, old[0].at };
    }
}

static bool done(struct beams *b, int64_t source)
{
    const int64_t number = b->number[source], first = source * b->o.beam;
    const bool    full = b->live[first].n >= b->longest[number];

    for (int64_t k = first; full && !b->n_ended[number] && k < first + b->o.beam; k++) {
        memcpy(b->tokens + k * b->most, b->copied + k * b->most,
               (size_t)b->live[k].n * sizeof *b->tokens);
        if (b->live[k].score > -INFINITY) end(b, source, k, b->live[k], false);
        b->n_ended[number] = 0;
    }
    return full || b->n_ended[number] >= b->o.beam || b->live[first].score == -INFINITY;
}

/* Sources that are done leave; the others close up. */
static foci_status close_up(struct beams *b)
{
    const int64_t beam = b->o.beam;
    int64_t       left = 0;

    for (int64_t s = 0; s < b->sources; s++) {
        if (done(b, s)) continue;
        for (int64_t k = 0; k < beam; k++) {
            const int64_t to = left * beam + k, was = s * beam + k;
            b->from[to] = b->from[was];
            b->ids[to] = b->ids[was];
            b->live[to] = b->live[was];
            memcpy(b->tokens + to * b->most, b->copied + was * b->most,
                   (size_t)b->live[to].n * sizeof *b->tokens);
        }
        b->number[left++] = b->number[s];
    }
    b->sources = left;
    return left ? foci_sequences_reorder(b->s, b->from, left * beam) : FOCI_OK;
}

static foci_status find_words(struct beams *b)
{
    for (int64_t k = 0; k < b->sources * b->o.beam; k++)
        TRY(words_find(b->m, b->o.tokenizer, &b->ids[k], 1, &b->live[k].at,
                       &b->words[k]));
    return FOCI_OK;
}

static foci_status search(struct beams *b)
{
    const foci_ctx *ctx = b->m->ctx;

    while (b->sources) {
        const int64_t      n = b->sources;
        const struct phase find = { n, 1, find_job, b };
        TRY(find_words(b));
        TRY(foci_sequences_step(b->s, NULL, b->ids, b->words, b->logits));
        phases_run(&ctx->kernels, false, ctx->threads, &find, 1);
        for (int64_t s = 0; s < n; s++)
            advance(b, s);
        TRY(close_up(b));
    }
    return FOCI_OK;
}

static void begin(struct beams *b, const foci_batch *sources)
{
    const int64_t beam = b->o.beam;

    b->sources = sources->batch;
    for (int64_t s = 0; s < sources->batch; s++) {
        b->number[s] = s;
        b->best[s] = -INFINITY;
        b->n_ended[s] = b->ended_n[s] = 0;
        b->longest[s] =
            b->o.longest ? b->o.longest : 2 * (int64_t)sources->source_lens[s] + 10;
        b->longest[s] = min64(b->longest[s], b->most - 1);
        for (int64_t k = s * beam; k < (s + 1) * beam; k++) {
            b->ids[k] = b->m->config.specials[FOCI_SPECIAL_BOS];
            b->live[k] = (struct hypothesis){ k % beam ? -INFINITY : 0,
                                              0,
                                              { FOCI_SIZED(foci_word_state) } };
        }
    }
}

/*
 * Memory, and sources in batches
 */

struct beam_piece {
    void **p;
    size_t n, size;
};

enum { N_PIECES = 16 };

static void list_pieces(struct beams *b, struct beam_piece all[N_PIECES])
{
    const size_t batch = (size_t)b->o.batch, beams = batch * (size_t)b->o.beam;
    const size_t most = (size_t)b->most, vocab = (size_t)b->m->config.vocab;
    const struct beam_piece list[N_PIECES] = {
        { (void **)&b->number, batch, sizeof *b->number },
        { (void **)&b->live, beams, sizeof *b->live },
        { (void **)&b->tokens, beams * most, sizeof *b->tokens },
        { (void **)&b->copied, beams * most, sizeof *b->copied },
        { (void **)&b->ids, beams, sizeof *b->ids },
        { (void **)&b->words, beams, sizeof *b->words },
        { (void **)&b->from, beams, sizeof *b->from },
        { (void **)&b->logits, beams * vocab, sizeof *b->logits },
        { (void **)&b->found, 2 * beams, sizeof *b->found },
        { (void **)&b->n_found, batch, sizeof *b->n_found },
        { (void **)&b->best, batch, sizeof *b->best },
        { (void **)&b->ended, batch * most, sizeof *b->ended },
        { (void **)&b->ended_n, batch, sizeof *b->ended_n },
        { (void **)&b->n_ended, batch, sizeof *b->n_ended },
        { (void **)&b->longest, batch, sizeof *b->longest },
    };
    memcpy(all, list, sizeof list);
}

static foci_status take_memory(struct beams *b)
{
    struct beam_piece all[N_PIECES];

    list_pieces(b, all);
    for (int i = 0; i < N_PIECES && all[i].p; i++)
        if (!(*all[i].p = ctx_alloc(b->m->ctx, all[i].n, all[i].size)))
            return FOCI_ERR_MEMORY;
    return FOCI_OK;
}

static void free_memory(struct beams *b)
{
    struct beam_piece all[N_PIECES];

    list_pieces(b, all);
    for (int i = 0; i < N_PIECES && all[i].p; i++)
        if (*all[i].p) ctx_free(b->m->ctx, *all[i].p, all[i].n, all[i].size);
    foci_sequences_free(b->s);
}

struct beam_text {
    const int32_t *ids;
    const int64_t *lens;
    int64_t        n, at; /* sentences; ids that were read */
};

/* Sources [first, first + n) as rows of one length. */
static foci_status lay_sources(const struct beams *b, struct beam_text *t,
                               int64_t first, int64_t n, foci_batch *batch,
                               int32_t *lens, int32_t **ids)
{
    foci_model *m = b->m;
    int64_t     longest = 1;

    for (int64_t i = 0; i < n; i++) {
        const int64_t len = t->lens[first + i];
        if (len < 0 || len > m->stacks[0].context)
            return ctx_fail(m->ctx, FOCI_ERR_ARG,
                            "sentence %" PRId64 " has %" PRId64
                            " tokens; the model takes up to %" PRId64,
                            first + i, len, m->stacks[0].context);
        lens[i] = (int32_t)len;
        longest = max64(longest, len);
    }
    *ids = ctx_alloc(m->ctx, (size_t)(2 * n * longest), sizeof **ids);
    if (!*ids) return FOCI_ERR_MEMORY;
    int32_t *const words = *ids + n * longest;
    *batch = (foci_batch){ FOCI_SIZED(foci_batch), .batch = n,
                           .source_len = longest,  .source_ids = *ids,
                           .source_words = words,  .source_lens = lens };
    for (int64_t i = 0; i < n; i++) {
        foci_word_state at = { FOCI_SIZED(foci_word_state) };
        memcpy(*ids + i * longest, t->ids + t->at, (size_t)lens[i] * sizeof **ids);
        t->at += lens[i];
        TRY(words_find(m, b->o.tokenizer, *ids + i * longest, lens[i], &at,
                       words + i * longest));
    }
    return FOCI_OK;
}

static foci_status translate_batch(struct beams *b, struct beam_text *t, int64_t first,
                                   int64_t n, int32_t *lens)
{
    foci_batch batch = { FOCI_SIZED(foci_batch) };
    int32_t   *ids = NULL;

    foci_status status = lay_sources(b, t, first, n, &batch, lens, &ids);
    if (!status && (!b->s || n != b->o.batch)) {
        foci_sequences_free(b->s);
        b->s = NULL;
        status = foci_sequences_create(b->m, n * b->o.beam, &b->s);
    }
    if (!status) status = foci_sequences_start(b->s, &batch);
    if (!status) begin(b, &batch);
    if (!status) status = search(b);
    if (ids) ctx_free(b->m->ctx, ids, 2 * (size_t)(n * batch.source_len), sizeof *ids);
    return status;
}

static foci_status translate_all(struct beams *b, struct beam_text *t,
                                 foci_translation_fn translation, void *user)
{
    int32_t    *lens = ctx_alloc(b->m->ctx, (size_t)b->o.batch, sizeof *lens);
    foci_status status = lens ? FOCI_OK : FOCI_ERR_MEMORY;
    bool        stop = false;

    for (int64_t first = 0; first < t->n && !status && !stop; first += b->o.batch) {
        const int64_t n = min64(b->o.batch, t->n - first);
        status = translate_batch(b, t, first, n, lens);
        for (int64_t i = 0; i < n && !status && !stop; i++)
            stop = translation(user, first + i, b->ended + i * b->most, b->ended_n[i],
                               b->best[i]);
    }
    if (lens) ctx_free(b->m->ctx, lens, (size_t)b->o.batch, sizeof *lens);
    return status;
}

static foci_status take_options(struct beams *b, const foci_translate_options *options)
{
    enum { MOST_BEAM = 64 };
    foci_ctx               *ctx = b->m->ctx;
    foci_translate_options *o = &b->o;

    if (options) TRY(sized_in(ctx, "foci_translate_options", o, options, sizeof *o));
    if (!o->beam) o->beam = 1;
    if (!o->batch) o->batch = 16;
    if (o->penalty == 0) o->penalty = 0.6;
    if (o->penalty < 0) o->penalty = 0;
    if (o->beam < 0 || o->beam > MOST_BEAM || o->batch < 0 || o->longest < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "beam is %" PRId64 ": it may be 1 to %d; batch and longest are "
                        "not negative",
                        o->beam, MOST_BEAM);
    return FOCI_OK;
}

foci_status foci_translate(foci_model *model, int64_t n, const int32_t *ids,
                           const int64_t *lens, const foci_translate_options *options,
                           foci_translation_fn translation, void *user)
{
    struct beams     b = { .m = model };
    struct beam_text t = { ids, lens, n, 0 };

    if (!model)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_translate: the model is NULL");
    if (model->config.task != FOCI_MODEL_TRANSLATE)
        return ctx_fail(model->ctx, FOCI_ERR_UNSUP,
                        "only a model of task translate translates");
    if (model->config.specials[FOCI_SPECIAL_BOS] < 0 ||
        model->config.specials[FOCI_SPECIAL_EOS] < 0)
        return ctx_fail(
            model->ctx, FOCI_ERR_UNSUP,
            "the model's tokenizer has no <bos> and <eos>, where translations "
            "begin and end");
    if (n < 0 || (n && (!lens || !ids || !translation)))
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "sentences to translate have ids and lengths, and somebody who "
                        "is told");
    TRY(take_options(&b, options));
    TRY(words_check(model, b.o.tokenizer));
    b.most = model_last(model)->context;
    foci_status status = take_memory(&b);
    if (!status) status = translate_all(&b, &t, translation, user);
    free_memory(&b);
    return status;
}
