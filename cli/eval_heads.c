/* eval_heads.c -- what the heads of a model do: how evenly they spread their weights, and how
 * far they are from softmax. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/eval_costs.h"
#include "foci/analyse.h"

enum {
    SEEN_BATCHES = 4,    /* that heads are looked at on, */
    SEEN_POSITIONS = 256 /* of each so many in all at most: weights are a matrix */
};

static struct cost_attention *attention_at(struct costs *c, const foci_observation *o)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->attention[i].name, o->name)) return &c->attention[i];
    c->attention = need_one_more(c->attention, c->n, &c->cap, sizeof *c->attention);
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

/* Why there is no number.  That memory is missing is no reason, but ends the command. */
static void note_reason(struct costs *c, foci_status status, char why[400])
{
    snprintf(why, 400, "%s", foci_errmsg(c->ctx));
    if (status == FOCI_ERR_MEMORY) c->failed = status;
}

static void add_concentration(struct costs *c, struct cost_attention *a,
                              const foci_observation *o, const foci_layer_problem *p,
                              double *heads)
{
    double mean;

    if (p->len > SEEN_POSITIONS) {
        snprintf(a->no_concentration, sizeof a->no_concentration,
                 "its tensors are as long as the context, of %lld tokens, and weights "
                 "are computed up to %d",
                 (long long)p->len, SEEN_POSITIONS);
        return;
    }
    const foci_status status = foci_layer_concentration(o->layer, o->io, heads);
    if (status) {
        note_reason(c, status, a->no_concentration);
    } else if (mean_of(heads, p->heads, &mean)) {
        a->concentration += mean;
        a->n_concentrations++;
    } else {
        snprintf(a->no_concentration, sizeof a->no_concentration,
                 "all weights are zero");
    }
}

static void add_error(struct costs *c, struct cost_attention *a,
                      const foci_observation *o, const foci_layer_problem *p,
                      double *heads)
{
    const foci_status status = foci_layer_softmax_errors(o->layer, o->io, heads);
    double            mean;

    if (status) {
        note_reason(c, status, a->no_error);
    } else if (mean_of(heads, p->heads, &mean)) {
        a->error += mean;
        a->n_errors++;
    } else {
        snprintf(
            a->no_error, sizeof a->no_error,
            "its heads do not read one query, key and value each, as softmax does");
    }
}

static int look(void *user, const foci_observation *o)
{
    struct costs          *c = user;
    struct cost_attention *a = attention_at(c, o);
    foci_layer_problem     p = { FOCI_SIZED(foci_layer_problem) };

    (void)foci_layer_get_problem(o->layer, &p);
    double *heads = need((size_t)p.heads, sizeof *heads);
    add_concentration(c, a, o, &p, heads);
    if (!c->failed) add_error(c, a, o, &p, heads);
    free(heads);
    return c->failed != FOCI_OK;
}

foci_status heads_look(const struct judged *j, struct costs *c)
{
    foci_batch  b;
    foci_status status = foci_data_rewind(j->data, 0);

    for (int i = 0; i < SEEN_BATCHES && !status; i++) {
        status = costs_next_batch(j, &b);
        if (status || !b.batch) break;
        const int64_t longer = b.len > b.source_len ? b.len : b.source_len;
        const int64_t rows = SEEN_POSITIONS / longer;
        status = foci_model_observe(j->model, &b, rows > 0 ? rows : 1, SEEN_POSITIONS,
                                    look, c);
        if (!status) status = c->failed;
    }
    return status;
}

double heads_concentration(const struct cost_attention *a)
{
    return a->n_concentrations ? a->concentration / a->n_concentrations : NAN;
}

double heads_error(const struct cost_attention *a)
{
    return a->n_errors ? a->error / a->n_errors : NAN;
}

/* The mean over the attentions that have a number. */
double heads_overall(const struct costs *c, double (*of)(const struct cost_attention *))
{
    double *all = need(c->n + 1, sizeof *all), mean;

    for (size_t i = 0; i < c->n; i++)
        all[i] = of(&c->attention[i]);
    mean_of(all, (int64_t)c->n, &mean);
    free(all);
    return mean;
}
