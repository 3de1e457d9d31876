/* compare_length_show.c -- the results of foci compare --length: a table, JSON, or CSV. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare_length.h"
#include "foci/file.h"

static void error_cell(const struct length_cell *c, struct output_table *t)
{
    char text[32];

    if (isnan(c->error)) {
        table_cell(t, "-");
        return;
    }
    snprintf(text, sizeof text,
             c->error <= 0       ? "0"
             : c->error < 0.0995 ? "%.1e"
                                 : "%.2f",
             c->error);
    if (c->untrained)
        table_cell(t, "(%s)", text);
    else
        table_cell(t, "%s", text);
}

static void row(const struct lengths *w, int spec, int i, struct output_table *t)
{
    const struct length_cell *c = length_cell(w, spec, i);
    const struct length_cell *softmax = length_cell(w, 0, i);
    char                      text[16];

    if (spec)
        table_cell(t, "%s", "");
    else
        table_cell(t, "%lld", (long long)w->length[i]);
    table_cell(t, "%s", w->specs[spec]);
    if (!c->measured) {
        for (int k = 0; k < 6; k++)
            table_cell(t, "-");
        return;
    }
    table_cell(t, "%.3f", 1e3 * c->seconds);
    if (c->rounds > 1)
        table_cell(t, "%.0f", 50 * (c->high - c->low) / c->seconds);
    else
        table_cell(t, "-");
    table_cell(t, "%s", thousands((double)length_tokens(w, i) / c->seconds, text));
    if (softmax->measured)
        table_cell(t, "%.2f", softmax->seconds / c->seconds);
    else
        table_cell(t, "-");
    table_cell(t, "%sB", thousands(length_memory(c), text));
    error_cell(c, t);
}

static void print_rows(const struct lengths *w)
{
    static const char *const heads[] = { "length",   "mechanism", "median ms", "+-%",
                                         "tokens/s", "x softmax", "memory",    "error" };
    struct output_table     *t = table_headed("rlrrrrrr");

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < w->n_lengths; i++)
        for (int s = 0; s < w->n_specs; s++)
            row(w, s, i, t);
    table_print(t, stdout);
    table_free(t);
}

static void print_skipped(const struct lengths *w)
{
    bool any = false;

    for (int i = 0; i < w->n_lengths; i++)
        for (int s = 0; s < w->n_specs; s++) {
            const struct length_cell *c = length_cell(w, s, i);
            if (c->measured || !c->skipped) continue;
            printf("%s%s at %lld was left out: %s\n", any ? "" : "\n", w->specs[s],
                   (long long)w->length[i], c->skipped);
            any = true;
        }
}

static void print_setting(const struct lengths *w)
{
    static const char *const passes[] = { "forward", "backward", "forward and backward",
                                          "a step of decoding" };
    const foci_problem      *p = &w->problem;
    const int                threads = foci_ctx_threads(w->ctx);

    printf("\n%s, %s%s, %lld head%s of %lld%s, %d thread%s; medians of %d round%s\n",
           passes[w->pass], p->dtype == FOCI_BF16 ? "bf16" : "f32",
           p->flags & FOCI_FLAG_FAST && p->dtype == FOCI_F32 ? " (fast)" : "",
           (long long)p->heads, p->heads == 1 ? "" : "s", (long long)p->dim_qk,
           p->flags & FOCI_FLAG_CAUSAL ? ", causal" : "", threads,
           threads == 1 ? "" : "s", w->rounds, w->rounds == 1 ? "" : "s");
    if (w->pass == PASS_STEP)
        printf("memory: the state, scratch and plan; tokens/s: of one sequence\n\n");
    else
        printf(
            "memory: tensors, scratch and plan; error: against exact attention, on "
            "standard\nnormal data; in parentheses where weights are untrained or not "
            "made of q and k\n\n");
}

static int print_json_results(const struct lengths *w)
{
    json_t *list = json_array(), *all = length_setting(w);

    for (int i = 0; i < w->n_lengths; i++)
        for (int s = 0; s < w->n_specs; s++)
            json_array_append_new(list, length_json(w, s, i));
    json_object_set_new(all, "results", list);
    json_object_set_new(all, "crossings", length_crossings_json(w));
    json_object_set_new(all, "fastest", length_fastest_json(w));
    json_object_set_new(all, "advice", length_advice_json(w));
    return print_json(w->a, all);
}

int length_show(const struct lengths *w)
{
    if (w->a->json) return print_json_results(w);
    print_rows(w);
    print_skipped(w);
    print_setting(w);
    length_advice_print(w);
    return EXIT_OK;
}

/*
 * CSV
 */

/* A text in quotes, its own doubled. */
static void csv_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; text && *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void csv_value(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        csv_text(out, json_string_value(value));
    else if (json_is_number(value))
        fprintf(out, "%.9g", json_number_value(value));
    else if (json_is_boolean(value))
        fputc(json_is_true(value) ? '1' : '0', out);
}

/* A line for each result, with the fields of its JSON; those that it lacks are empty. */
static void csv_lines(const struct lengths *w, FILE *out)
{
    static const char *const fields[] = {
        "spec",
        "length",
        "seconds",
        "quartile1",
        "quartile3",
        "rounds",
        "tokens_per_second",
        "flops",
        "tensor_bytes",
        "work_bytes",
        "saved_bytes",
        "state_bytes",
        "plan_bytes",
        "memory_bytes",
        "error",
        "untrained",
        "skipped",
    };
    enum { N = sizeof fields / sizeof *fields };

    for (int f = 0; f < N; f++)
        fprintf(out, "%s%s", fields[f], f < N - 1 ? "," : "\n");
    for (int i = 0; i < w->n_lengths; i++)
        for (int s = 0; s < w->n_specs; s++) {
            json_t *line = length_json(w, s, i);
            for (int f = 0; f < N; f++) {
                csv_value(out, json_object_get(line, fields[f]));
                fputc(f < N - 1 ? ',' : '\n', out);
            }
            json_decref(line);
        }
}

int length_csv(const struct lengths *w, const char *path)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *out = open_memstream(&text, &n);

    if (out) csv_lines(w, out);
    if (!out || fclose(out) || !text) no_memory("CSV");
    hold_signals();
    const foci_status status = foci_file_write(w->judge, path, text, n);
    release_signals();
    free(text);
    return status ? library_error(w->a, w->judge, status, NULL) : EXIT_OK;
}
