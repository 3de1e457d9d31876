/* bench_show.c -- what `foci bench` prints: a table or Markdown, JSON, CSV. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* The ceiling of the products this case is made of. */
static double peak(const struct bench_row *row)
{
    const bool bf16 =
        row->c.problem.dtype == FOCI_BF16 || row->c.problem.flags & FOCI_FLAG_FAST;
    const double x = bf16 ? row->before.bf16_flops : row->before.f32_flops;
    const double y = bf16 ? row->after.bf16_flops : row->after.f32_flops;
    return x > y ? x : y;
}

/* Bytes a second: some cases mostly read, others write as much. */
static double memory_rate(const struct bench_row *row)
{
    const double copy = row->after.copy_bytes, read = row->after.read_bytes;
    return copy > read ? copy : read;
}

static double memory(const struct bench_row *row)
{
    return (double)(row->r.work_bytes + row->r.saved_bytes);
}

/* Queries a second; 0 of products, which have none. */
static double tokens_rate(const struct bench_row *row)
{
    const double batch = row->c.problem.batch > 1 ? (double)row->c.problem.batch : 1;
    return row->c.product.m ? 0 : batch * (double)row->c.problem.len_q / row->r.median;
}

void bench_compare_rows(struct bench_row *rows, int n, const char *baseline)
{
    const struct bench_row *base = NULL;

    for (int i = 0; i < n && baseline && !base; i++)
        if (strcmp(rows[i].c.text, baseline) == 0) base = &rows[i];
    for (int i = 0; i < n && base; i++) {
        const double own = tokens_rate(&rows[i]), its = tokens_rate(base);
        rows[i].ratio =
            own > 0 && its > 0 ? own / its : base->r.median / rows[i].r.median;
    }
}

/*
 * JSON and CSV
 */

static json_t *row_json(const struct bench_row *row)
{
    const struct bench_result *r = &row->r;
    json_t *j = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f}", "case", row->c.text, "reps",
                          r->reps, "seconds", r->median, "best", r->best, "quartile1",
                          r->low, "quartile3", r->high);
    const double             flops = r->flops / r->median, bytes = r->bytes / r->median;
    const double             numbers[] = { r->flops,         flops,
                                           r->bytes,         bytes,
                                           peak(row),        flops / peak(row),
                                           memory_rate(row), bytes / memory_rate(row) };
    static const char *const names[] = { "flops",        "flops_per_second",
                                         "bytes",        "bytes_per_second",
                                         "peak_flops",   "share",
                                         "memory_bytes", "share_of_memory" };
    if (tokens_rate(row) > 0)
        json_object_set_new(j, "tokens_per_second", json_real(tokens_rate(row)));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_object_set_new(j, names[i], json_real(numbers[i]));
    json_object_set_new(j, "pairs", json_real(r->pairs));
    json_object_set_new(j, "density", json_real(r->density));
    json_object_set_new(j, "tiles_full", json_integer(r->tiles_full));
    json_object_set_new(j, "tiles_part", json_integer(r->tiles_part));
    json_object_set_new(j, "tiles_skipped", json_integer(r->tiles_skipped));
    json_object_set_new(j, "work_bytes", json_integer((json_int_t)r->work_bytes));
    json_object_set_new(j, "saved_bytes", json_integer((json_int_t)r->saved_bytes));
    if (row->ratio > 0) json_object_set_new(j, "over_baseline", json_real(row->ratio));
    if (row->old > 0) {
        json_object_set_new(j, "old_seconds", json_real(row->old));
        json_object_set_new(j, "speedup", json_real(row->old / r->median));
    }
    json_object_set_new(j, "plan", json_string(r->plan));
    return j;
}

static int print_rows_json(const struct args *a, const foci_ctx *ctx,
                           const struct bench_row *rows, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, row_json(&rows[i]));
    return print_json(a, json_pack("{s:s, s:i, s:o}", "version", foci_version(),
                                   "threads", foci_ctx_threads(ctx), "cases", list));
}

static void csv_cell(struct output_table *t, const json_t *value)
{
    if (json_is_string(value))
        table_cell(t, "%s", json_string_value(value));
    else if (json_is_number(value))
        table_cell(t, "%.9g", json_number_value(value));
    else
        table_cell(t, "%s", "");
}

/* The fields of the JSON but for plans, a line for each case. */
static int write_csv(const struct args *a, foci_ctx *ctx, const struct bench_row *rows,
                     int n)
{
    static const char *const fields[] = {
        "case",          "reps",
        "seconds",       "best",
        "quartile1",     "quartile3",
        "flops",         "flops_per_second",
        "bytes",         "bytes_per_second",
        "peak_flops",    "share",
        "memory_bytes",  "share_of_memory",
        "pairs",         "density",
        "tiles_full",    "tiles_part",
        "tiles_skipped", "work_bytes",
        "saved_bytes",   "tokens_per_second",
        "over_baseline", "old_seconds",
        "speedup",
    };
    enum { N = sizeof fields / sizeof *fields };
    char columns[N + 1];

    memset(columns, 'l', N);
    columns[N] = '\0';
    struct output_table *t = table_create(columns);
    for (int f = 0; f < N; f++)
        table_cell(t, "%s", fields[f]);
    for (int i = 0; i < n; i++) {
        json_t *row = row_json(&rows[i]);
        for (int f = 0; f < N; f++)
            csv_cell(t, json_object_get(row, fields[f]));
        json_decref(row);
    }
    hold_signals();
    const foci_status status = table_write_csv(ctx, t, opt_text(a, "csv"));
    release_signals();
    table_free(t);
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}

/*
 * The table
 */

static void number_or_none(struct output_table *t, double x)
{
    if (x > 0)
        table_cell(t, "%.2f", x);
    else
        table_cell(t, "-");
}

static void add_row(struct output_table *t, const struct bench_row *row, bool ratio,
                    bool old)
{
    const struct bench_result *r = &row->r;
    const double               tokens = tokens_rate(row);
    char                       text[16];

    table_cell(t, "%s", row->c.text);
    table_cell(t, "%.3f", 1e3 * r->median);
    table_cell(t, "%.0f", 50 * (r->high - r->low) / r->median);
    if (ratio) number_or_none(t, row->ratio);
    if (old) number_or_none(t, row->old > 0 ? row->old / r->median : 0);
    table_cell(t, "%s", tokens > 0 ? thousands(tokens, text) : "-");
    table_cell(t, "%s", thousands(r->flops / r->median, text));
    table_cell(t, "%.0f%%", 100 * r->flops / r->median / peak(row));
    table_cell(t, "%s", thousands(r->bytes / r->median, text));
    table_cell(t, "%.0f%%", 100 * r->bytes / r->median / memory_rate(row));
    table_cell(t, "%s", thousands(memory(row), text));
    table_cell(t, "%.3g%%", 100 * r->density);
    table_cell(t, "%d", r->reps);
}

static void print_rows(const struct args *a, const foci_ctx *ctx,
                       const struct bench_row *rows, int n)
{
    static const char *const heads[] = { "tokens/s", "FLOP/s", "of peak", "B/s",
                                         "of rate",  "memory", "density", "reps" };
    const bool ratio = opt_text(a, "baseline"), old = opt_text(a, "compare");
    static const char *const columns[] = { "lrrrrrrrrrr", "lrrrrrrrrrrr",
                                           "lrrrrrrrrrrrr" };

    struct output_table *t = table_headed(columns[ratio + old]);
    table_pair(t, "case", "median ms");
    table_cell(t, "+-%%");
    if (ratio) table_cell(t, "x baseline");
    if (old) table_cell(t, "speed-up");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < n; i++)
        add_row(t, &rows[i], ratio, old);
    if (opt_flag(a, "markdown"))
        table_print_markdown(t, stdout);
    else
        table_print(t, stdout);
    table_free(t);

    printf("\n%d threads, warm caches; +-%%: half the distance of the quartiles\n",
           foci_ctx_threads(ctx));
    for (int i = 0; i < n && !opt_flag(a, "markdown"); i++)
        printf("\n%s\n%s", rows[i].c.text, rows[i].r.plan);
}

int bench_show(const struct args *a, foci_ctx *ctx, const struct bench_row *rows, int n)
{
    const int code = opt_text(a, "csv") ? write_csv(a, ctx, rows, n) : EXIT_OK;

    if (code) return code;
    if (a->json) return print_rows_json(a, ctx, rows, n);
    print_rows(a, ctx, rows, n);
    return EXIT_OK;
}
