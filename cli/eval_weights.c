/* eval_weights.c -- foci eval --heads FILE: the weights of every head on the first sequence,
 * as a page can show them (report_heads.c).
 *
 * A weight is a byte b, from -127 to 127, of which b |b| / 127^2 is its share of the largest
 * one of its head: small ones keep more of their digits.  The more heads a model has, the
 * fewer tokens are looked at, so that the file stays small.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/eval_costs.h"
#include "cli/markup.h"
#include "foci/analyse.h"
#include "foci/file.h"

enum {
    MOST_TOKENS = 64,
    MOST_BYTES = 160 << 10, /* of weights */
    FEWEST_KEYS = 8         /* of a row whose weights are said to spread */
};

struct weighing {
    const struct judged *j;
    json_t              *list;
    int64_t              heads; /* of all attentions */
};

/*
 * Numbers of a head
 */

static int upward(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean and quartiles; null without any. */
static json_t *spread_of(double *x, size_t n)
{
    double sum = 0;

    if (!n) return json_null();
    qsort(x, n, sizeof *x, upward);
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return json_pack("{s:f, s:f, s:f}", "mean", sum / (double)n, "low", x[n / 4],
                     "high", x[n - 1 - n / 4]);
}

/* The standard deviation of the logarithms; NAN where one has none. */
static double log_deviation(const float *a, int64_t n)
{
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(a[i] > 0)) return NAN;
        sum += log((double)a[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        const double d = log((double)a[i]) - sum / (double)n;
        squares += d * d;
    }
    return sqrt(squares / (double)n);
}

/* How concentrated the rows of a head are, and how far their logarithms are spread. */
static void add_numbers(json_t *o, const foci_attention_weights *a, const float *weights)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };
    double            *s = need((size_t)a->queries, sizeof *s);
    double            *spread = need((size_t)a->queries, sizeof *spread);
    size_t             n_s = 0, n_spread = 0;

    (void)foci_layer_get_problem(a->layer, &p);
    for (int64_t i = 0; i < a->queries; i++) {
        const float  *row = weights + i * a->keys;
        const int64_t seen =
            p.flags & FOCI_FLAG_CAUSAL ? a->keys - a->queries + i + 1 : a->keys;
        if (seen < FEWEST_KEYS || seen > a->keys) continue;
        const double one = foci_concentration(row, seen);
        const double deviation = log_deviation(row, seen);
        if (isfinite(one)) s[n_s++] = one;
        if (isfinite(deviation)) spread[n_spread++] = deviation;
    }
    if (n_spread < n_s) n_spread = 0;
    json_object_set_new(o, "concentration", spread_of(s, n_s));
    json_object_set_new(o, "spread", spread_of(spread, n_spread));
    free(s);
    free(spread);
}

/*
 * Weights
 */

static json_t *head_json(const foci_attention_weights *a, const float *weights)
{
    const size_t  n = (size_t)(a->queries * a->keys);
    int8_t       *bytes = need(n + 1, 1);
    double        most = 0;
    struct markup text = { 0 };

    for (size_t i = 0; i < n; i++)
        if (isfinite(weights[i])) most = fmax(most, fabs((double)weights[i]));
    for (size_t i = 0; i < n && most > 0; i++) {
        const double share = isfinite(weights[i]) ? (double)weights[i] / most : 0;
        bytes[i] = (int8_t)lround(copysign(127 * sqrt(fabs(share)), share));
    }
    markup_base64(&text, bytes, n);
    json_t *o = json_pack("{s:f, s:s}", "most", most, "weights", n ? text.bytes : "");
    add_numbers(o, a, weights);
    markup_free(&text);
    free(bytes);
    return o;
}

static int take(void *user, const foci_attention_weights *a)
{
    struct weighing *w = user;
    json_t          *heads = json_array();
    json_t          *o =
        json_pack("{s:s, s:s, s:I, s:I, s:i, s:i, s:I, s:o}", "name", a->name,
                  "attention", a->spec, "queries", (json_int_t)a->queries, "keys",
                  (json_int_t)a->keys, "query_side", a->query_side, "key_side",
                  a->key_side, "memory", (json_int_t)a->memory, "heads", heads);

    if (!a->weights) json_object_set_new(o, "why", json_string(a->why ? a->why : ""));
    for (int64_t h = 0; a->weights && h < a->heads; h++)
        json_array_append_new(heads,
                              head_json(a, a->weights + h * a->queries * a->keys));
    json_array_append_new(w->list, o);
    return 0;
}

static int count(void *user, const foci_observation *o)
{
    struct weighing   *w = user;
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };

    if (!foci_layer_get_problem(o->layer, &p)) w->heads += p.heads;
    return 0;
}

/*
 * Tokens
 */

static json_t *tokens_json(const foci_tokenizer *tokenizer, const int32_t *ids,
                           int64_t n)
{
    json_t *list = json_array();
    char    text[256];

    for (int64_t i = 0; i < n; i++) {
        if (ids)
            foci_token_display(tokenizer, ids[i], text, sizeof text);
        else
            snprintf(text, sizeof text, "%lld", (long long)i);
        json_t *token = json_string(text); /* NULL: cut within a character */
        json_array_append_new(list, token ? token : json_string("?"));
    }
    return list;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static foci_status weigh(struct weighing *w, json_t *to)
{
    const struct judged *j = w->j;
    foci_batch           b;
    foci_status          status = foci_data_rewind(j->data, 0);

    if (!status) status = costs_next_batch(j, &b);
    if (status || !b.batch) return status;
    status = foci_model_observe(j->model, &b, 1, 1, count, w);
    const double  room = MOST_BYTES / fmax((double)w->heads, 1);
    const int64_t len = least((int64_t)fmax(sqrt(room), 8), MOST_TOKENS);
    if (!status) status = foci_model_attentions(j->model, &b, len, take, w);
    if (status) return status;
    const int64_t n = b.docs ? b.len : b.lens ? b.lens[0] : b.len;
    json_array_append_new(to, tokens_json(j->tokenizer, b.ids, least(n, len)));
    json_array_append_new(to,
                          tokens_json(j->tokenizer, b.source_ids,
                                      b.source_ids ? least(b.source_lens[0], len) : 0));
    return FOCI_OK;
}

int weights_write(const struct judged *j, const char *path)
{
    struct weighing w = { .j = j, .list = json_array() };
    json_t         *sides = json_array();
    foci_status     status = weigh(&w, sides);
    json_t *o = json_pack("{s:s, s:o, s:o}", "version", foci_version(), "sides", sides,
                          "attentions", w.list);
    char   *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6));

    if (!status) status = foci_file_write(j->ctx, path, text, strlen(text));
    free(text);
    json_decref(o);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}
