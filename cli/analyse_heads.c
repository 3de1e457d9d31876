/* analyse_heads.c -- what heads do, as a table, a file and JSON: a line for each head, their
 * mean, and how alike they are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse_heads.h"

/* What stands in a column of the table, in this order. */
static const struct {
    int         figure;
    const char *title, *format;
} columns[] = {
    { FOCI_HEAD_CONCENTRATION, "S", "%.4f" },
    { FOCI_HEAD_ENTROPY, "entropy", "%.3f" },
    { FOCI_HEAD_NORMALISED, "of log n", "%.3f" },
    { FOCI_HEAD_PERPLEXITY, "perplexity", "%.1f" },
    { FOCI_HEAD_TOP, "top", "%.3f" },
    { FOCI_HEAD_DISTANCE, "distance", "%.1f" },
    { FOCI_HEAD_EFFECTIVE_RANK, "eff. rank", "%.1f" },
    { FOCI_HEAD_NUMERICAL_RANK, "rank", "%.1f" },
};

enum { N_COLUMNS = sizeof columns / sizeof *columns };

static char *copy_text(const char *text)
{
    if (!text) return NULL;
    const size_t bytes = strlen(text) + 1;
    return memcpy(need(bytes, 1), text, bytes);
}

/*
 * Rows
 */

static json_t *json_figures(const double *figures, int n)
{
    json_t *o = json_object();

    for (int f = 0; f < n; f++)
        json_object_set_new(o, foci_head_figure_name(f), json_number(figures[f]));
    return o;
}

static int take_row(void *user, const foci_head_row *row)
{
    const struct heads_layer *l = user;
    const struct heads_view  *v = l->view;
    const long long where[] = { row->head, l->first + row->batch, row->row, row->keys };

    if (v->rows) {
        json_t *o = json_figures(row->figures, FOCI_HEAD_ROW_FIGURES);
        json_object_update_new(
            o, json_pack("{s:s*, s:I, s:I, s:I, s:I}", "layer", l->name, "head",
                         (json_int_t)where[0], "sequence", (json_int_t)where[1], "row",
                         (json_int_t)where[2], "keys", (json_int_t)where[3]));
        json_array_append_new(v->rows, o);
    }
    if (!v->row_file) return 0;
    table_cell(v->row_file, "%s", l->name ? l->name : "");
    for (int i = 0; i < 4; i++)
        table_cell(v->row_file, "%lld", where[i]);
    for (int f = 0; f < FOCI_HEAD_ROW_FIGURES; f++)
        number_cell(v->row_file, "%.17g", row->figures[f], true);
    return 0;
}

static struct output_table *row_table(void)
{
    static const char *const heads[] = { "layer", "head", "sequence", "row", "keys" };
    static const char        letters[] = "lrrrrrrrrrrrrrrrrr";
    _Static_assert(sizeof letters == 5 + FOCI_HEAD_ROW_FIGURES + 1, "a column each");

    struct output_table *t = table_headed(letters);
    for (int i = 0; i < 5; i++)
        table_cell(t, "%s", heads[i]);
    for (int f = 0; f < FOCI_HEAD_ROW_FIGURES; f++)
        table_cell(t, "%s", foci_head_figure_name(f));
    return t;
}

/*
 * Layers
 */

void heads_open(struct heads_view *v, const struct args *a, foci_ctx *ctx,
                const char *of)
{
    const bool rows = opt_flag(a, "rows");

    *v = (struct heads_view){ .a = a, .ctx = ctx, .of = of, .loss = NAN };
    if (rows && a->json) v->rows = json_array();
    if (rows && opt_text(a, "csv")) v->row_file = row_table();
}

void heads_close(struct heads_view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        foci_heads_free(v->layers[i]->heads);
        free(v->layers[i]->name);
        free(v->layers[i]->spec);
        free(v->layers[i]->loss);
        free(v->layers[i]);
    }
    free(v->layers);
    json_decref(v->rows);
    if (v->row_file) table_free(v->row_file);
}

foci_status heads_layer(struct heads_view *v, const char *name, const char *spec,
                        int64_t index, int64_t n, struct heads_layer **layer)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->layers[i]->index == index) {
            *layer = v->layers[i];
            return FOCI_OK;
        }
    v->layers = need_one_more(v->layers, v->n, &v->cap, sizeof *v->layers);
    struct heads_layer *l = *layer = v->layers[v->n++] = need(1, sizeof *l);
    *l = (struct heads_layer){ .view = v,
                               .name = copy_text(name),
                               .spec = copy_text(spec),
                               .index = index,
                               .n = n };
    const foci_heads_options o = { FOCI_SIZED(foci_heads_options),
                                   .heads = n,
                                   .top = opt_int(v->a, "top", 0),
                                   .rows = opt_int(v->a, "sample", 0),
                                   .rank = opt_int(v->a, "rank", 0),
                                   .row = v->rows || v->row_file ? take_row : NULL,
                                   .user = l };
    return foci_heads_create(v->ctx, &o, &l->heads);
}

static foci_head head_of(const struct heads_layer *l, int64_t head)
{
    foci_head h = { FOCI_SIZED(foci_head) };

    for (int f = 0; f < FOCI_HEAD_FIGURES; f++)
        h.figures[f] = NAN;
    if (l->heads) (void)foci_heads_get(l->heads, head, &h);
    return h;
}

double heads_mean(const struct heads_layer *l, int figure)
{
    double sum = 0, n = 0;

    for (int64_t h = 0; h < l->n; h++) {
        const double x = head_of(l, h).figures[figure];
        if (isnan(x)) continue;
        sum += x;
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

int heads_pattern(const foci_head *h, double *share)
{
    int best = -1;

    *share = NAN;
    for (int f = FOCI_HEAD_CURRENT; f <= FOCI_HEAD_START; f++)
        if (best < 0 ? !isnan(h->figures[f]) : h->figures[f] > *share) {
            best = f;
            *share = h->figures[f];
        }
    return best;
}

/* The mean over pairs of heads, and the pair that is most alike. */
static double mean_likeness(const struct heads_layer *l, int64_t pair[2], double *most)
{
    double sum = 0, n = 0;

    *most = NAN;
    for (int64_t a = 0; l->heads && a < l->n; a++)
        for (int64_t b = a + 1; b < l->n; b++) {
            const double x = foci_heads_likeness(l->heads, a, b);
            if (isnan(x)) continue;
            sum += x;
            n++;
            if (isnan(*most) || x > *most) {
                *most = x;
                pair[0] = a;
                pair[1] = b;
            }
        }
    return n > 0 ? sum / n : NAN;
}

/*
 * JSON
 */

/* Figures that are numbers, and why others are not. */
static json_t *json_head(const struct heads_layer *l, int64_t head)
{
    const foci_head h = head_of(l, head);
    json_t         *o = json_pack("{s:I, s:I, s:I}", "head", (json_int_t)head, "rows",
                                  (json_int_t)h.rows, "zero_rows", (json_int_t)h.zero);
    json_t         *shares = json_object(), *reasons = json_object();
    double          share;
    const int       pattern = heads_pattern(&h, &share);

    for (int f = 0; f < FOCI_HEAD_FIGURES; f++) {
        const bool  of_pattern = f >= FOCI_HEAD_CURRENT && f <= FOCI_HEAD_START;
        const char *name = foci_head_figure_name(f);
        const char *why = l->heads ? foci_heads_reason(l->heads, head, f) : l->why;
        json_object_set_new(of_pattern ? shares : o, name, json_number(h.figures[f]));
        if (why) json_object_set_new(reasons, name, json_string(why));
    }
    json_object_set_new(o, "shares", shares);
    json_object_set_new(o, "pattern",
                        pattern < 0 ? json_null()
                                    : json_string(foci_head_figure_name(pattern)));
    if (l->loss) json_object_set_new(o, "loss_without", json_number(l->loss[head]));
    json_object_set_new(o, "reasons", reasons);
    return o;
}

static json_t *json_likeness(const struct heads_layer *l)
{
    json_t *rows = json_array();

    for (int64_t a = 0; a < l->n; a++) {
        json_t *row = json_array();
        for (int64_t b = 0; b < l->n; b++)
            json_array_append_new(row, json_number(foci_heads_likeness(l->heads, a, b)));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *json_layer(const struct heads_layer *l)
{
    json_t *heads = json_array();
    double  mean[FOCI_HEAD_FIGURES];

    for (int64_t h = 0; h < l->n; h++)
        json_array_append_new(heads, json_head(l, h));
    for (int f = 0; f < FOCI_HEAD_FIGURES; f++)
        mean[f] = heads_mean(l, f);
    json_t *o = json_pack(
        "{s:s*, s:s*, s:o, s:o, s:o}", "name", l->name, "spec", l->spec, "heads", heads,
        "mean", json_figures(mean, FOCI_HEAD_FIGURES), "likeness", json_likeness(l));
    if (!l->heads) json_object_set_new(o, "reason", json_string(l->why));
    return o;
}

static json_t *json_view(const struct heads_view *v)
{
    json_t *layers = json_array();

    for (size_t i = 0; i < v->n; i++)
        json_array_append_new(layers, json_layer(v->layers[i]));
    json_t *o =
        json_pack("{s:s, s:I, s:o}", "of", v->of, "top",
                  (json_int_t)opt_int(v->a, "top", HEADS_TOP), "layers", layers);
    if (!isnan(v->loss)) {
        json_object_set_new(o, "loss", json_real(v->loss));
        json_object_set_new(o, "labels", json_integer(v->labels));
    }
    if (v->rows) json_object_set(o, "rows", v->rows);
    return o;
}

/*
 * For people, and as a file
 */

static bool has_layers(const struct heads_view *v)
{
    return v->layers[0]->name != NULL;
}

static void layer_cells(const struct heads_view *v, struct output_table *t,
                        const char *name, const char *head)
{
    if (has_layers(v)) table_cell(t, "%s", name);
    table_cell(t, "%s", head);
}

static void print_pattern(struct output_table *t, const foci_head *h)
{
    double    share;
    const int pattern = heads_pattern(h, &share);

    table_cell(t, "%s", pattern < 0 ? "-" : foci_head_figure_name(pattern));
    number_cell(t, "%.3f", share, false);
}

static void print_loss(const struct heads_view *v, struct output_table *t, double loss)
{
    if (isnan(v->loss)) return;
    number_cell(t, "%.4f", loss, false);
    number_cell(t, "%+.4f", loss - v->loss, false);
}

static void print_mean(const struct heads_view *v, struct output_table *t,
                       const struct heads_layer *l)
{
    layer_cells(v, t, "", "mean");
    for (int c = 0; c < N_COLUMNS; c++)
        number_cell(t, columns[c].format, heads_mean(l, columns[c].figure), false);
    table_cell(t, "%s", "");
    table_cell(t, "%s", "");
    if (isnan(v->loss)) return;
    table_cell(t, "%s", "");
    table_cell(t, "%s", "");
}

static void print_layer(const struct heads_view *v, struct output_table *t,
                        const struct heads_layer *l)
{
    char number[24];

    for (int64_t i = 0; i < l->n; i++) {
        const foci_head h = head_of(l, i);

        snprintf(number, sizeof number, "%lld", (long long)i);
        layer_cells(v, t, i ? "" : l->name, number);
        for (int c = 0; c < N_COLUMNS; c++)
            number_cell(t, columns[c].format, h.figures[columns[c].figure], false);
        print_pattern(t, &h);
        print_loss(v, t, l->loss ? l->loss[i] : NAN);
    }
    if (l->n > 1) print_mean(v, t, l);
}

static void print_heads(const struct heads_view *v)
{
    const bool           losses = !isnan(v->loss);
    char                 letters[N_COLUMNS + 8] = "";
    struct output_table *t;

    snprintf(letters, sizeof letters, "%sr%.*slr%s", has_layers(v) ? "l" : "",
             N_COLUMNS, "rrrrrrrrrrrrrrrr", losses ? "rr" : "");
    t = table_headed(letters);
    layer_cells(v, t, "layer", "head");
    for (int c = 0; c < N_COLUMNS; c++)
        if (columns[c].figure == FOCI_HEAD_TOP)
            table_cell(t, "top %lld", (long long)opt_int(v->a, "top", HEADS_TOP));
        else
            table_cell(t, "%s", columns[c].title);
    table_cell(t, "pattern");
    table_cell(t, "share");
    if (losses) {
        table_cell(t, "loss without");
        table_cell(t, "change");
    }
    for (size_t i = 0; i < v->n; i++)
        print_layer(v, t, v->layers[i]);
    table_print(t, stdout);
    table_free(t);
}

/* Neighbouring heads that lack a figure for one reason stand in one line; what they lack all
 * figures for is said of the first. */
static void print_reason(const struct heads_layer *l, int figure)
{
    int64_t first = 0;

    for (int64_t h = 1; h <= l->n; h++) {
        const char *why = foci_heads_reason(l->heads, first, figure);
        if (h < l->n && why == foci_heads_reason(l->heads, h, figure)) continue;
        if (why && !(figure && why == foci_heads_reason(l->heads, first, 0))) {
            printf("-: %s%shead%s %lld", l->name ? l->name : "", l->name ? ", " : "",
                   h - first > 1 ? "s" : "", (long long)first);
            if (h - first > 1) printf(" to %lld", (long long)h - 1);
            printf(": %s: %s\n", foci_head_figure_name(figure), why);
        }
        first = h;
    }
}

static void print_reasons(const struct heads_layer *l)
{
    static const int figures[] = { FOCI_HEAD_CONCENTRATION, FOCI_HEAD_ENTROPY,
                                   FOCI_HEAD_DISTANCE, FOCI_HEAD_EFFECTIVE_RANK };

    if (!l->heads) printf("-: %s: %s\n", l->name ? l->name : "all heads", l->why);
    for (size_t i = 0; l->heads && i < sizeof figures / sizeof *figures; i++)
        print_reason(l, figures[i]);
}

static void print_likeness(const struct heads_view *v)
{
    struct output_table *t = table_headed("lrlr");
    bool                 any = false;

    table_pair(t, "layer", "likeness of heads");
    table_pair(t, "most alike", "likeness");
    for (size_t i = 0; i < v->n; i++) {
        int64_t      pair[2] = { 0, 0 };
        double       most;
        const double mean = mean_likeness(v->layers[i], pair, &most);
        if (isnan(mean)) continue;
        any = true;
        table_cell(t, "%s", v->layers[i]->name ? v->layers[i]->name : "all");
        table_cell(t, "%.3f", mean);
        table_cell(t, "%lld and %lld", (long long)pair[0], (long long)pair[1]);
        table_cell(t, "%.3f", most);
    }
    if (any) {
        printf("\n");
        table_print(t, stdout);
    }
    table_free(t);
}

static void print_view(const struct heads_view *v)
{
    print_heads(v);
    for (size_t i = 0; i < v->n; i++)
        print_reasons(v->layers[i]);
    print_likeness(v);
    if (!isnan(v->loss))
        printf("\nloss with all heads: %.4f nats a label, over %lld labels\n", v->loss,
               (long long)v->labels);
}

static struct output_table *head_table(const struct heads_view *v)
{
    static const char letters[] = "lrrrrrrrrrrrrrrrrrrr";
    _Static_assert(sizeof letters == 5 + FOCI_HEAD_FIGURES + 1, "a column each");

    struct output_table *t = table_headed(letters);
    table_pair(t, "layer", "head");
    table_pair(t, "rows", "zero_rows");
    for (int f = 0; f < FOCI_HEAD_FIGURES; f++)
        table_cell(t, "%s", foci_head_figure_name(f));
    table_cell(t, "loss_without");
    for (size_t i = 0; i < v->n; i++)
        for (int64_t n = 0; n < v->layers[i]->n; n++) {
            const struct heads_layer *l = v->layers[i];
            const foci_head           h = head_of(l, n);

            table_pair(t, l->name ? l->name : "", "%lld", (long long)n);
            table_cell(t, "%lld", (long long)h.rows);
            table_cell(t, "%lld", (long long)h.zero);
            for (int f = 0; f < FOCI_HEAD_FIGURES; f++)
                number_cell(t, "%.17g", h.figures[f], true);
            number_cell(t, "%.17g", l->loss ? l->loss[n] : NAN, true);
        }
    return t;
}

static foci_status write_files(const struct heads_view *v)
{
    const char *out = opt_text(v->a, "out"), *csv = opt_text(v->a, "csv");
    foci_status status = FOCI_OK;

    hold_signals();
    if (out) status = heads_draw(v, out);
    if (csv && !status) {
        struct output_table *t = v->row_file ? v->row_file : head_table(v);
        status = table_write_csv(v->ctx, t, csv);
        if (t != v->row_file) table_free(t);
    }
    release_signals();
    return status;
}

int heads_show(const struct heads_view *v)
{
    const foci_status status = write_files(v);

    if (status) return library_error(v->a, v->ctx, status, NULL);
    if (v->a->json) return print_json(v->a, json_view(v));
    print_view(v);
    return EXIT_OK;
}
