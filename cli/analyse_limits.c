/* analyse_limits.c -- logits and weights of frozen projections beside their limits, and which kind
 * spreads least at equal cost. */
#include <math.h>
#include <string.h>

#include "cli/analyse_limits.h"

enum { N_KINDS = 3, AVERAGED = 8, ROWS = 64, DRAWS = 32 };

static const char *const kinds[N_KINDS] = { "orthogonal", "gaussian", "hadamard" };

foci_status limits_measure(foci_ctx *ctx, const struct args *a, int64_t width,
                           int64_t dim, const float *x, int64_t rows,
                           struct limits_view *v)
{
    const int64_t all = opt_int(a, "draws", DRAWS);

    *v =
        (struct limits_view){ .width = width,
                              .heads = AVERAGED,
                              .draws = all > (int64_t)2 * AVERAGED ? all / AVERAGED : 2,
                              .rows = x && rows < ROWS ? rows : ROWS,
                              .of = x ? "hidden states" : "random states" };
    for (int64_t k = dim;; k = 2 * k < width ? 2 * k : width) {
        for (int i = 0; i < 2 * N_KINDS; i++)
            v->limits[v->n++] =
                (foci_limit){ .kind = i / 2, .tied = i % 2 == 0, .dim = k };
        if (k == width) break;
    }
    return foci_limits_run(
        ctx, &(foci_limits_io){
                 FOCI_SIZED(foci_limits_io), .width = width, .heads = v->heads,
                 .draws = v->draws, .seed = (uint64_t)opt_int(a, "seed", 0), .x = x,
                 .rows = v->rows, .limits = v->limits, .n_limits = v->n });
}

/*
 * Equal cost
 */

/* Operations that project a row of x: 2 d k, or three transforms of d log2 b additions and d
 * signs each, where b is the largest power of two that divides d. */
static double cost_of(const struct limits_view *v, const foci_limit *at)
{
    const double d = (double)v->width;
    double       steps = 0;

    if (at->kind != 2) return 2 * d * (double)at->dim;
    for (int64_t b = v->width; b % 2 == 0; b /= 2)
        steps++;
    return 3 * d * (steps + 1);
}

/* Of a kind the tied head that spreads least for no more than that; NULL: none costs as
 * little. */
static const foci_limit *best_for(const struct limits_view *v, int kind, double cost)
{
    const foci_limit *best = NULL;

    for (int i = 0; i < v->n; i++) {
        const foci_limit *at = &v->limits[i];
        if (at->kind != kind || !at->tied || isnan(at->spread.measured)) continue;
        if (cost_of(v, at) > cost) continue;
        if (!best || at->spread.measured < best->spread.measured) best = at;
    }
    return best;
}

/* The kinds that spread least, joined: what is left of rounding does not tell them apart. */
static void least_of_kinds(const struct limits_view *v, double cost,
                           const foci_limit *best[N_KINDS], char text[48])
{
    double least = INFINITY;

    *text = '\0';
    for (int kind = 0; kind < N_KINDS; kind++) {
        best[kind] = best_for(v, kind, cost);
        if (best[kind]) least = fmin(least, best[kind]->spread.measured);
    }
    for (int kind = 0; kind < N_KINDS; kind++)
        if (best[kind] && best[kind]->spread.measured <= least + 1e-6)
            snprintf(text + strlen(text), 48 - strlen(text), "%s%s", *text ? ", " : "",
                     kinds[kind]);
}

/* Costs that are compared: those of dense heads. */
static bool next_cost(const struct limits_view *v, int *i, double *cost)
{
    for (; *i < v->n; ++*i)
        if (v->limits[*i].kind == 0 && v->limits[*i].tied) {
            *cost = cost_of(v, &v->limits[(*i)++]);
            return true;
        }
    return false;
}

static void print_costs(const struct limits_view *v)
{
    struct output_table *t = table_headed("rrrrl");
    double               cost = 0;

    table_cell(t, "operations");
    for (int kind = 0; kind < N_KINDS; kind++)
        table_cell(t, "%s", kinds[kind]);
    table_cell(t, "least");
    for (int i = 0; next_cost(v, &i, &cost);) {
        const foci_limit *best[N_KINDS];
        char              least[48];

        least_of_kinds(v, cost, best, least);
        table_cell(t, "%.0f", cost);
        for (int kind = 0; kind < N_KINDS; kind++)
            if (best[kind])
                table_cell(t, "%.4f (%lld)", best[kind]->spread.measured,
                           (long long)best[kind]->dim);
            else
                table_cell(t, "-");
        table_cell(t, "%s", least);
    }
    table_print(t, stdout);
    table_free(t);
}

/*
 * Limits
 */

static void figure_cells(struct output_table *t, const foci_figure *f)
{
    number_cell(t, "%.4f", f->measured, false);
    number_cell(t, "%.1e", isnan(f->measured) ? NAN : f->error, false);
    number_cell(t, "%.4f", f->expected, false);
}

static void print_limits(const struct limits_view *v, int what, int many)
{
    struct output_table *t = table_headed("lrrrrrrr");

    table_pair(t, "kind", "dim");
    for (int tied = 1; tied >= 0; tied--) {
        table_cell(t, tied ? "tied" : "untied");
        table_cell(t, "error");
        table_cell(t, "theory");
    }
    for (int i = 0; i < v->n; i += 2) {
        table_pair(t, kinds[v->limits[i].kind], "%lld", (long long)v->limits[i].dim);
        for (int untied = 0; untied < 2; untied++) {
            const foci_limit *at = &v->limits[i + untied];
            figure_cells(t, what ? &at->weights[many] : &at->logits[many]);
        }
    }
    table_print(t, stdout);
    table_free(t);
}

void limits_print(const struct limits_view *v)
{
    static const char *const whats[] = { "logits: deviation from their mean",
                                         "weights: relative distance from the limit" };

    for (int what = 0; what < 2; what++)
        for (int many = 0; many < 2; many++) {
            printf("\n%s, ", whats[what]);
            if (many)
                printf("mean of %lld heads", (long long)v->heads);
            else
                printf("one head");
            printf(", %lld %s of width %lld\n\n", (long long)v->rows, v->of,
                   (long long)v->width);
            print_limits(v, what, many);
        }
    printf("\nspread of the kernel, tied, for a row projected at this cost (dim of the "
           "head)\n\n");
    print_costs(v);
}

static json_t *json_figure(const foci_figure *f)
{
    return json_pack("{s:o, s:o, s:o}", "measured", json_number(f->measured), "error",
                     json_number(f->error), "theory", json_number(f->expected));
}

static json_t *json_costs(const struct limits_view *v)
{
    json_t *list = json_array();
    double  cost = 0;

    for (int i = 0; next_cost(v, &i, &cost);) {
        const foci_limit *best[N_KINDS];
        char              least[48];

        least_of_kinds(v, cost, best, least);
        json_t *o = json_pack("{s:f}", "operations", cost);
        for (int kind = 0; kind < N_KINDS; kind++)
            json_object_set_new(
                o, kinds[kind],
                best[kind] ? json_pack("{s:I, s:f}", "dim", (json_int_t)best[kind]->dim,
                                       "spread", best[kind]->spread.measured)
                           : json_null());
        json_object_set_new(o, "least", json_string(least));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *limits_json(const struct limits_view *v)
{
    json_t *list = json_array();

    for (int i = 0; i < v->n; i++) {
        const foci_limit *at = &v->limits[i];
        json_array_append_new(
            list, json_pack("{s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o}", "kind",
                            kinds[at->kind], "tied", at->tied, "dim",
                            (json_int_t)at->dim, "logits", json_figure(&at->logits[0]),
                            "mean_logits", json_figure(&at->logits[1]), "weights",
                            json_figure(&at->weights[0]), "mean_weights",
                            json_figure(&at->weights[1]), "spread",
                            json_figure(&at->spread)));
    }
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "heads", (json_int_t)v->heads,
                     "draws", (json_int_t)v->draws, "rows", (json_int_t)v->rows,
                     "results", list, "equal_cost", json_costs(v));
}
