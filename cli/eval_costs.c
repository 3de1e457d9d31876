/* eval_costs.c -- what a model costs on the data that judge it: parameters and flops are
 * counted, states weighed, speed and memory measured. */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "cli/eval_costs.h"

enum {
    TIMED_BATCHES = 8,
    TIMED_STEPS = 512 /* about, over the length of a sequence */
};

void seen_add(struct seen *s, const foci_batch *b)
{
    for (int64_t i = 0; i < b->batch; i++) {
        const int64_t n = b->lens ? b->lens[i] : b->len;
        const int64_t source = b->source_lens ? b->source_lens[i] : b->source_len;
        s->tokens += n;
        if (n > s->len) s->len = n;
        if (source > s->source_len) s->source_len = source;
    }
    s->rows += b->batch;
    s->labels += b->n_labels;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    if (!n) return NAN;
    qsort(x, n, sizeof *x, compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/*
 * Counted
 */

/* Frozen projections count as if they were written out. */
static void count_parameters(const struct judged *j, struct costs *c)
{
    foci_param p = { FOCI_SIZED(foci_param) };

    c->trained = foci_model_trained_floats(j->model);
    for (int i = 0; i < foci_model_param_count(j->model); i++)
        if (!foci_model_param(j->model, i, &p)) c->parameters += p.count;
}

/* Of the longest sequence, whose output is computed at as many positions as the data have
 * labels, a token. */
static foci_status count_flops(const struct judged *j, const struct seen *seen,
                               struct costs *c)
{
    const double  share = (double)seen->labels / (double)seen->tokens;
    const int64_t labels = llrint(share * (double)c->len);
    const double  tokens = (double)(c->len + c->source_len);
    foci_cost     cost = { FOCI_SIZED(foci_cost) };

    const foci_status status = foci_model_cost(j->model, c->len, c->source_len,
                                               labels > 0 ? labels : 1, &cost);
    c->forward_flops = cost.forward_flops / tokens;
    c->training_flops = (cost.forward_flops + cost.backward_flops) / tokens;
    return status;
}

/*
 * Measured
 */

foci_status costs_next_batch(const struct judged *j, foci_batch *b)
{
    *b = (foci_batch){ FOCI_SIZED(foci_batch) };
    return foci_data_next(j->data, b);
}

/* The second time that a batch is computed: the first one plans. */
static foci_status time_forward(const struct judged *j, struct costs *c)
{
    double      rates[TIMED_BATCHES];
    size_t      n = 0;
    foci_batch  b;
    foci_status status = foci_data_rewind(j->data, 0);

    while (n < TIMED_BATCHES && !status) {
        status = costs_next_batch(j, &b);
        if (status || !b.batch) break;
        status = foci_model_loss(j->model, &b, NULL, NULL, NULL);
        const double start = seconds();
        if (!status) status = foci_model_loss(j->model, &b, NULL, NULL, NULL);
        rates[n++] = (double)b.n_tokens / (seconds() - start);
    }
    c->forward = median(rates, n);
    return status;
}

/* The first rows of the data over and over, as one that is as long as the longest. */
struct cost_sequence {
    int32_t *ids, *words, *source_ids, *source_words;
};

static int32_t *repeat(const int32_t *ids, int64_t n, int64_t len)
{
    int32_t *to = need((size_t)len + 1, sizeof *to);

    for (int64_t i = 0; i < len; i++)
        to[i] = ids && n > 0 ? ids[i % n] : (int32_t)i;
    return to;
}

static foci_status make_sequence(const struct judged *j, const struct costs *c,
                                 struct cost_sequence *s)
{
    foci_batch  b;
    foci_status status = foci_data_rewind(j->data, 0);

    if (!status) status = costs_next_batch(j, &b);
    if (status || !b.ids) return status;
    s->ids = repeat(b.ids, b.lens[0], c->len);
    s->words = repeat(NULL, 0, c->len);
    if (b.source_ids)
        s->source_ids = repeat(b.source_ids, b.source_lens[0], c->source_len);
    s->source_words = repeat(NULL, 0, c->source_len);
    return FOCI_OK;
}

static void free_sequence(struct cost_sequence *s)
{
    free(s->ids);
    free(s->words);
    free(s->source_ids);
    free(s->source_words);
}

/* From empty to the full length, token by token; of long sequences most tokens are appended
 * many at a time, so that those that are timed are spread over all of it. */
static foci_status step_through(const struct judged *j, struct costs *c,
                                const struct cost_sequence *s, foci_sequences *q)
{
    const bool    at_once = j->config.task == FOCI_MODEL_LM;
    const int64_t stride = at_once ? (c->len + TIMED_STEPS - 1) / TIMED_STEPS : 1;
    float        *logits = need((size_t)j->config.vocab, sizeof *logits);
    double       *took = need((size_t)c->len, sizeof *took);
    size_t        n = 0;
    foci_status   status = FOCI_OK;

    for (int64_t at = 0; at < c->len && !status; at++) {
        const int64_t left = c->len - at;
        const int32_t more = (int32_t)(left < stride ? left - 1 : stride - 1);
        if (more)
            status = foci_sequences_step(q, &more, s->ids + at, s->words + at, NULL);
        if (status) break;
        at += more;
        const double start = seconds();
        status = foci_sequences_step(q, NULL, s->ids + at, s->words + at, logits);
        took[n++] = seconds() - start;
    }
    c->decoding = 1 / median(took, n);
    c->state_bytes = (int64_t)foci_sequences_bytes(q);
    free(logits);
    free(took);
    return status;
}

static foci_status start(const struct judged *j, const struct costs *c,
                         const struct cost_sequence *s, foci_sequences *q)
{
    const int32_t    len = (int32_t)c->source_len;
    const foci_batch sources = {
        FOCI_SIZED(foci_batch), .batch = 1,
        .source_len = len,      .source_ids = s->source_ids,
        .source_lens = &len,    .source_words = s->source_words
    };

    return j->config.task == FOCI_MODEL_TRANSLATE ? foci_sequences_start(q, &sources)
                                                  : FOCI_OK;
}

/* A model that cannot write says why. */
static foci_status time_decoding(const struct judged *j, struct costs *c)
{
    struct cost_sequence s = { .ids = NULL };
    foci_sequences      *q = NULL;

    c->state_bytes = -1;
    c->decoding = NAN;
    foci_status status = foci_sequences_create(j->model, 1, &q);
    if (status == FOCI_ERR_UNSUP) {
        snprintf(c->no_state, sizeof c->no_state, "%s", foci_errmsg(j->ctx));
        return FOCI_OK;
    }
    if (!status) status = make_sequence(j, c, &s);
    if (!status) status = start(j, c, &s, q);
    if (!status) status = step_through(j, c, &s, q);
    free_sequence(&s);
    foci_sequences_free(q);
    return status;
}

/* Most memory that the process has had; Linux counts it in KiB. */
static int64_t peak(void)
{
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) ? -1 : 1024 * (int64_t)r.ru_maxrss;
}

/*
 * All of it
 */

/* What looking at heads takes is no cost of the model: memory is read off before. */
static foci_status find(const struct judged *j, const struct seen *seen, struct costs *c)
{
    foci_status status;

    count_parameters(j, c);
    status = count_flops(j, seen, c);
    if (!status) status = time_forward(j, c);
    if (!status) status = time_decoding(j, c);
    c->peak_bytes = peak();
    return status ? status : heads_look(j, c);
}

int costs_tell(const struct judged *j, const struct seen *seen, json_t *o)
{
    struct costs c = { .ctx = j->ctx, .len = seen->len, .source_len = seen->source_len };

    if (!seen->tokens) return failure(j->a, "--costs: the data have no tokens");
    const foci_status status = find(j, seen, &c);
    const int code = status ? library_error(j->a, j->ctx, status, "--costs") : EXIT_OK;
    if (!code && j->a->json) json_object_set_new(o, "costs", costs_json(&c));
    if (!code && !j->a->json) costs_print(&c);
    for (size_t i = 0; i < c.n; i++)
        free(c.attention[i].spec);
    free(c.attention);
    return code;
}
