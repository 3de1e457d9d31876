/* analyse_error_show.c -- errors against softmax as a table, a file and JSON. */
#include <math.h>
#include <string.h>

#include "cli/analyse_error.h"

void errors_axis(const struct errors *e, char *text, size_t cap)
{
    static const char *const names[] = { [AXIS_SPREAD] =
                                             "standard deviation of the logits s q.k",
                                         [AXIS_LENGTH] = "tokens",
                                         [AXIS_DIM] = "width of queries and keys",
                                         [AXIS_NONE] = "the tensors as they are" };

    snprintf(text, cap, "%s", e->axis == AXIS_ARGUMENT ? e->name : names[e->axis]);
}

void errors_extents(const struct errors *e, char *text, size_t cap)
{
    const foci_problem *p = &e->sources[0].p;
    size_t              n = 0;

    if (e->axis != AXIS_LENGTH)
        n = (size_t)snprintf(text, cap, "%lld tokens; ", (long long)p->len_q);
    if (e->axis != AXIS_DIM)
        n += (size_t)snprintf(text + n, cap - n, "width %lld; ", (long long)p->dim_qk);
    n += (size_t)snprintf(text + n, cap - n, "%lld heads", (long long)p->heads);
    if (e->sources[0].drawn && e->axis != AXIS_SPREAD)
        n += (size_t)snprintf(text + n, cap - n, "; logits of deviation %g", e->spread);
    if (opt_flag(e->a, "causal")) snprintf(text + n, cap - n, "; causal");
}

static void print_caption(const struct errors *e)
{
    char axis[128], extents[256];

    errors_axis(e, axis, sizeof axis);
    errors_extents(e, extents, sizeof extents);
    printf("columns: %s; %s\n"
           "output: |o - o'| / |o'|, weights: |A - A'| / |A'|, of softmax o' and A'\n",
           axis, extents);
}

static int spec_of(const struct errors *e, int curve) { return curve / e->n_sources; }

static void error_cells(struct output_table *t, const double *errors, int n)
{
    for (int i = 0; i < n; i++)
        number_cell(t, errors[i] < 9.9995 ? "%.3f" : "%.3g", errors[i], false);
}

static const struct curve *first_of(const struct errors *e, int spec)
{
    return &e->curves[(ptrdiff_t)spec * e->n_sources];
}

static void print_notes(const struct errors *e)
{
    for (int s = 0; s < e->n / e->n_sources; s++)
        if (*e->untrained[s])
            printf("* %s is an untrained mixture: %s as drawn, which training would "
                   "learn\n",
                   first_of(e, s)->spec, e->untrained[s]);
}

static void print_errors(const struct errors *e)
{
    char                 columns[MAX_VALUES + 4] = "lll";
    struct output_table *t;

    memset(columns + 3, 'r', (size_t)e->values.n);
    t = table_headed(columns);
    table_pair(t, "mechanism", "keys");
    table_cell(t, "error of");
    for (int i = 0; i < e->values.n; i++)
        if (e->axis == AXIS_NONE)
            table_cell(t, "error");
        else
            table_cell(t, e->axis == AXIS_SPREAD ? "%.3g" : "%.0f", e->values.x[i]);
    for (int c = 0; c < e->n; c++) {
        const struct curve *at = &e->curves[c];
        const bool          again = c && at[-1].spec == at->spec;
        char                name[512];
        snprintf(name, sizeof name, "%s%s", at->spec,
                 *e->untrained[spec_of(e, c)] ? " *" : "");
        table_pair(t, again ? "" : name, "%s", e->sources[at->source].name);
        table_cell(t, "output");
        error_cells(t, at->errors, e->values.n);
        table_pair(t, "", "%s", "");
        table_cell(t, "weights");
        error_cells(t, at->weight_errors, e->values.n);
    }
    table_print(t, stdout);
    table_free(t);
    print_caption(e);
    print_notes(e);
}

static struct output_table *file_table(const struct errors *e)
{
    struct output_table *t = table_headed("llrrrl");
    char                 axis[128];

    errors_axis(e, axis, sizeof axis);
    table_pair(t, "mechanism", "keys");
    table_pair(t, axis, "output_error");
    table_pair(t, "weight_error", "untrained");
    for (int c = 0; c < e->n; c++)
        for (int i = 0; i < e->values.n; i++) {
            const struct curve *at = &e->curves[c];
            table_pair(t, at->spec, "%s", e->sources[at->source].name);
            number_cell(t, "%g", e->axis == AXIS_NONE ? NAN : e->values.x[i], true);
            number_cell(t, "%g", at->errors[i], true);
            number_cell(t, "%g", at->weight_errors[i], true);
            table_cell(t, "%s", e->untrained[spec_of(e, c)]);
        }
    return t;
}

static json_t *json_values(const double *x, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_number(x[i]));
    return list;
}

static json_t *json_errors(const struct errors *e)
{
    const foci_problem *p = &e->sources[0].p;
    json_t             *list = json_array();
    char                axis[128];

    errors_axis(e, axis, sizeof axis);
    for (int c = 0; c < e->n; c++) {
        const struct curve *at = &e->curves[c];
        const char         *untrained = e->untrained[spec_of(e, c)];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:o, s:o}", "spec", at->spec, "keys",
                            e->sources[at->source].name, "errors",
                            json_values(at->errors, e->values.n), "weight_errors",
                            json_values(at->weight_errors, e->values.n), "untrained",
                            *untrained ? json_string(untrained) : json_null()));
    }
    json_t *o =
        json_pack("{s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "dim", (json_int_t)p->dim_qk,
                  "length", (json_int_t)p->len_q, "heads", (json_int_t)p->heads, "seed",
                  (json_int_t)e->seed, "axis", axis, "values",
                  json_values(e->values.x, e->axis == AXIS_NONE ? 0 : e->values.n),
                  "curves", list);
    if (e->axis == AXIS_SPREAD)
        json_object_set_new(o, "spreads", json_values(e->values.x, e->values.n));
    else if (e->sources[0].drawn)
        json_object_set_new(o, "spread", json_real(e->spread));
    return o;
}

int errors_show(const struct errors *e)
{
    const char *out = opt_text(e->a, "out"), *csv = opt_text(e->a, "csv");
    foci_status status = FOCI_OK;

    hold_signals();
    if (out) status = errors_draw(e, out);
    if (csv && !status) {
        struct output_table *t = file_table(e);
        status = table_write_csv(e->ctx, t, csv);
        table_free(t);
    }
    release_signals();
    if (status) return library_error(e->a, e->ctx, status, NULL);
    if (e->a->json) return print_json(e->a, json_errors(e));
    print_errors(e);
    return EXIT_OK;
}
