/* eval_costs.c -- what a model costs, and what its heads do, on the data that judge it:
 * parameters and flops are counted, states weighed, speed and memory measured, and heads
 * looked at while batches go through the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/eval.h"
#include "foci/analyse.h"

enum {
    TIMED_BATCHES = 8,
    TIMED_STEPS = 512,   /* about, over the length of a sequence */
    SEEN_BATCHES = 4,    /* that heads are looked at on, */
    SEEN_ROWS = 2,       /* of each so many sequences, */
    SEEN_POSITIONS = 256 /* and so much of them: weights are a matrix */
};

/* One attention of the model.  Sums over batches; why: there is no such number. */
struct cost_attention {
    char   name[64], *spec;
    double concentration, error; /* sums of the means over heads */
    int    n_concentrations, n_errors;
    char   no_concentration[400], no_error[400];
};

struct costs {
    int64_t len, source_len; /* tokens of the longest sequence, and of its source */
    int64_t trained, parameters;
    double  forward_flops, training_flops; /* a token */
    int64_t state_bytes, peak_bytes;
    double  decoding, forward; /* tokens a second */
    char    no_state[400];
    struct cost_attention *attention; /* [n] */
    size_t                 n, cap;
    foci_ctx              *ctx;
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

/* The next batch of this pass; of 0 rows behind the last. */
static foci_status next_batch(const struct judged *j, foci_batch *b)
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
        status = next_batch(j, &b);
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

    if (!status) status = next_batch(j, &b);
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
    struct cost_sequence s = { NULL };
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
 * Seen: what heads do
 */

static struct cost_attention *attention_at(struct costs *c, const foci_observation *o)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->attention[i].name, o->name)) return &c->attention[i];
    if (c->n == c->cap) {
        const size_t           cap = 2 * c->cap + 16;
        struct cost_attention *more = need(cap, sizeof *more);
        if (c->n) memcpy(more, c->attention, c->n * sizeof *more);
        free(c->attention);
        c->attention = more;
        c->cap = cap;
    }
    struct cost_attention *a = &c->attention[c->n++];
    const size_t           bytes = strlen(o->spec) + 1;
    *a = (struct cost_attention){ .spec = need(bytes, 1) };
    memcpy(a->spec, o->spec, bytes);
    snprintf(a->name, sizeof a->name, "%s", o->name);
    return a;
}

/* The mean over the heads that have a number. */
static bool mean_of(const double *heads, int64_t n, double *mean)
{
    double  sum = 0;
    int64_t count = 0;

    for (int64_t h = 0; h < n; h++) {
        if (isnan(heads[h])) continue;
        sum += heads[h];
        count++;
    }
    *mean = count ? sum / (double)count : NAN;
    return count > 0;
}

static void add_concentration(struct costs *c, struct cost_attention *a,
                              const foci_observation *o, const foci_layer_problem *p,
                              double *heads)
{
    double mean;

    if (p->len > SEEN_POSITIONS)
        snprintf(a->no_concentration, sizeof a->no_concentration,
                 "its tensors are as long as the context, of %lld tokens, and weights "
                 "are computed up to %d",
                 (long long)p->len, SEEN_POSITIONS);
    else if (foci_layer_concentration(o->layer, o->io, heads))
        snprintf(a->no_concentration, sizeof a->no_concentration, "%s",
                 foci_errmsg(c->ctx));
    else if (mean_of(heads, p->heads, &mean)) {
        a->concentration += mean;
        a->n_concentrations++;
    } else
        snprintf(a->no_concentration, sizeof a->no_concentration,
                 "all weights are zero");
}

static void add_error(struct costs *c, struct cost_attention *a,
                      const foci_observation *o, const foci_layer_problem *p,
                      double *heads)
{
    double mean;

    if (foci_layer_softmax_errors(o->layer, o->io, heads))
        snprintf(a->no_error, sizeof a->no_error, "%s", foci_errmsg(c->ctx));
    else if (mean_of(heads, p->heads, &mean)) {
        a->error += mean;
        a->n_errors++;
    } else
        snprintf(
            a->no_error, sizeof a->no_error,
            "its heads do not read one query, key and value each, as softmax does");
}

static int look(void *user, const foci_observation *o)
{
    struct costs          *c = user;
    struct cost_attention *a = attention_at(c, o);
    foci_layer_problem     p = { FOCI_SIZED(foci_layer_problem) };

    if (foci_layer_get_problem(o->layer, &p)) return 1;
    double *heads = need((size_t)p.heads, sizeof *heads);
    add_concentration(c, a, o, &p, heads);
    add_error(c, a, o, &p, heads);
    free(heads);
    return 0;
}

static foci_status look_at_heads(const struct judged *j, struct costs *c)
{
    foci_batch  b;
    foci_status status = foci_data_rewind(j->data, 0);

    for (int i = 0; i < SEEN_BATCHES && !status; i++) {
        status = next_batch(j, &b);
        if (status || !b.batch) break;
        status = foci_model_observe(j->model, &b, SEEN_ROWS, SEEN_POSITIONS, look, c);
    }
    return status;
}

/*
 * Results
 */

static double concentration_of(const struct cost_attention *a)
{
    return a->n_concentrations ? a->concentration / a->n_concentrations : NAN;
}

static double error_of(const struct cost_attention *a)
{
    return a->n_errors ? a->error / a->n_errors : NAN;
}

/* The mean over the attentions that have a number. */
static double overall(const struct costs *c, double (*of)(const struct cost_attention *))
{
    double *all = need(c->n + 1, sizeof *all), mean;

    for (size_t i = 0; i < c->n; i++)
        all[i] = of(&c->attention[i]);
    mean_of(all, (int64_t)c->n, &mean);
    free(all);
    return mean;
}

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *json_attentions(const struct costs *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->n; i++) {
        const struct cost_attention *a = &c->attention[i];
        json_t *o = json_pack("{s:s, s:s, s:o, s:o}", "name", a->name, "attention",
                              a->spec, "concentration", number(concentration_of(a)),
                              "softmax_error", number(error_of(a)));
        if (!a->n_concentrations)
            json_object_set_new(o, "no_concentration", json_string(a->no_concentration));
        if (!a->n_errors)
            json_object_set_new(o, "no_softmax_error", json_string(a->no_error));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *json_costs(const struct costs *c)
{
    json_t *o = json_object();

    json_object_set_new(o, "trained_parameters", json_integer(c->trained));
    json_object_set_new(o, "parameters", json_integer(c->parameters));
    json_object_set_new(o, "length", json_integer(c->len));
    if (c->source_len)
        json_object_set_new(o, "source_length", json_integer(c->source_len));
    json_object_set_new(o, "forward_flops_per_token", number(c->forward_flops));
    json_object_set_new(o, "training_flops_per_token", number(c->training_flops));
    json_object_set_new(o, "state_bytes",
                        c->state_bytes < 0 ? json_null() : json_integer(c->state_bytes));
    json_object_set_new(o, "decoding_tokens_per_second", number(c->decoding));
    if (*c->no_state) json_object_set_new(o, "no_decoding", json_string(c->no_state));
    json_object_set_new(o, "forward_tokens_per_second", number(c->forward));
    json_object_set_new(o, "peak_bytes",
                        c->peak_bytes < 0 ? json_null() : json_integer(c->peak_bytes));
    json_object_set_new(o, "concentration", number(overall(c, concentration_of)));
    json_object_set_new(o, "softmax_error", number(overall(c, error_of)));
    json_object_set_new(o, "attentions", json_attentions(c));
    return o;
}

static void print_cell(struct output_table *t, double x)
{
    if (isfinite(x))
        table_cell(t, "%.4f", x);
    else
        table_cell(t, "-");
}

static void print_attentions(const struct costs *c)
{
    struct output_table *t = table_create("lrrl");

    table_pair(t, "heads of", "concentration");
    table_pair(t, "error", "attention");
    for (size_t i = 0; i < c->n; i++) {
        const struct cost_attention *a = &c->attention[i];
        table_cell(t, "%s", a->name);
        print_cell(t, concentration_of(a));
        print_cell(t, error_of(a));
        table_cell(t, "%s", a->spec);
    }
    fputc('\n', stdout);
    table_print(t, stdout);
    table_free(t);
}

/* Once for all attentions that have it. */
static void print_reasons(const struct costs *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct cost_attention *a = &c->attention[i], *before = i ? a - 1 : NULL;
        if (!a->n_concentrations &&
            !(before && !strcmp(before->no_concentration, a->no_concentration)))
            printf("%s has no concentration: %s\n", a->name, a->no_concentration);
        if (!a->n_errors && !(before && !strcmp(before->no_error, a->no_error)))
            printf("%s has no error: %s\n", a->name, a->no_error);
    }
}

static void print_costs(const struct costs *c)
{
    struct output_table *t = table_create("lr");
    char                 text[16];

    fputc('\n', stdout);
    table_pair(t, "trained parameters", "%lld", (long long)c->trained);
    table_pair(t, "parameters in all", "%lld", (long long)c->parameters);
    table_pair(t, "flops a token, forward", "%s", thousands(c->forward_flops, text));
    table_pair(t, "flops a token, training", "%s", thousands(c->training_flops, text));
    table_pair(t, "tokens of a sequence", "%lld", (long long)c->len);
    if (c->source_len)
        table_pair(t, "tokens of its source", "%lld", (long long)c->source_len);
    if (c->state_bytes < 0)
        table_pair(t, "bytes of its state", "-");
    else
        table_pair(t, "bytes of its state", "%lld", (long long)c->state_bytes);
    table_pair(t, "tokens a second, decoding", "%s",
               isfinite(c->decoding) ? thousands(c->decoding, text) : "-");
    table_pair(t, "tokens a second, forward", "%s", thousands(c->forward, text));
    table_pair(t, "peak memory, bytes", "%s", thousands((double)c->peak_bytes, text));
    table_print(t, stdout);
    table_free(t);
    if (*c->no_state) printf("there is no decoding: %s\n", c->no_state);
    print_attentions(c);
    print_reasons(c);
}

/* What looking at heads takes is no cost of the model: memory is read off before. */
static foci_status find(const struct judged *j, const struct seen *seen, struct costs *c)
{
    foci_status status;

    count_parameters(j, c);
    status = count_flops(j, seen, c);
    if (!status) status = time_forward(j, c);
    if (!status) status = time_decoding(j, c);
    c->peak_bytes = peak();
    return status ? status : look_at_heads(j, c);
}

int costs_tell(const struct judged *j, const struct seen *seen, json_t *o)
{
    struct costs c = { .ctx = j->ctx, .len = seen->len, .source_len = seen->source_len };

    if (!seen->tokens) return failure(j->a, "--costs: the data have no tokens");
    const foci_status status = find(j, seen, &c);
    const int code = status ? library_error(j->a, j->ctx, status, "--costs") : EXIT_OK;
    if (!code && j->a->json) json_object_set_new(o, "costs", json_costs(&c));
    if (!code && !j->a->json) print_costs(&c);
    for (size_t i = 0; i < c.n; i++)
        free(c.attention[i].spec);
    free(c.attention);
    return code;
}
