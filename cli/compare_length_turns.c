/* compare_length_turns.c -- the measurements of one length.
 *
 * As many mechanisms as fit in memory are opened side by side, on the same inputs, and take
 * turns in rounds, each round beginning with another one, so that what else the machine does
 * meets them all.  A turn executes often enough to last 20 ms.  Before it is opened, each
 * case is asked for its memory and for the time that it is expected to take.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare_length.h"
#include "cli/growth.h"

enum { MOST_EXECUTIONS = 10000, PROBE = 1024, FAR_FROM_PROBE = 4096, PROBES = 3 };

static const double turn_seconds = 0.02;

/* A mechanism whose turn it is from time to time. */
struct turn {
    struct length_cell *cell;
    struct bench_case   c;
    foci_plan          *plan;
    struct bench_job    job;
    bool                open; /* the job is; else steps are, or nothing */
    struct bench_steps *steps;
    size_t              plan_bytes;
    double              flops;
    int                 executions; /* of a turn */
    double             *times;      /* [w->rounds] of an execution */
    int                 n;
    double              spent;
};

static void skip(struct length_cell *cell, const char *format, ...) CLI_PRINTF(2, 3);

static void skip(struct length_cell *cell, const char *format, ...)
{
    char    text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    free(cell->skipped);
    cell->skipped = need(strlen(text) + 1, 1);
    strcpy(cell->skipped, text);
}

/*
 * One execution
 */

static foci_status execute(struct turn *t, double *took)
{
    foci_status  status = t->steps ? bench_steps_rewind(t->steps) : FOCI_OK;
    const double begin = seconds();

    if (!status) status = t->steps ? bench_steps_run(t->steps) : bench_job_run(&t->job);
    *took = seconds() - begin;
    return status;
}

static foci_status open_job(const struct lengths *w, struct turn *t,
                            struct bench_input **inputs)
{
    if (w->pass == PASS_STEP && !on_device(w->ctx))
        return bench_steps_open(w->ctx, t->plan, NULL, &t->c, &t->steps);
    struct bench_case c = t->c;
    if (w->pass == PASS_STEP) c.pass = PASS_FWD;
    t->open = true;
    return bench_job_open(w->ctx, t->plan, &c, inputs, &t->job);
}

static void close_turn(struct turn *t)
{
    if (t->open) bench_job_close(&t->job);
    bench_steps_close(t->steps);
    foci_plan_free(t->plan);
    free(t->c.spec);
    bench_lists_free(&t->c);
    free(t->times);
    *t = (struct turn){ 0 };
}

static foci_status plan_turn(const struct lengths *w, const char *spec, int64_t length,
                             struct turn *t)
{
    const size_t before = w->meter->peak = w->meter->now;
    foci_cost    cost = { FOCI_SIZED(foci_cost) };

    const foci_status status = length_plan(w, spec, length, &t->c, &t->plan);
    if (status) return status;
    t->plan_bytes = w->meter->peak - before;
    foci_plan_cost(t->plan, &cost);
    if (w->pass == PASS_STEP) bench_step_cost(w->ctx, &t->c, &cost);
    t->flops = (w->pass != PASS_BWD ? cost.forward_flops : 0) +
               (w->pass == PASS_BWD || w->pass == PASS_BOTH ? cost.backward_flops : 0);
    return FOCI_OK;
}

/*
 * What to expect
 */

/* "95 s", "12 minutes" */
static const char *duration(double s, char text[32])
{
    static const struct {
        double      seconds, below;
        const char *name;
    } units[] = { { 1, 120, "s" },
                  { 60, 120 * 60, "minutes" },
                  { 3600, 48 * 3600, "hours" },
                  { 86400, INFINITY, "days" } };
    size_t i = 0;

    while (s >= units[i].below)
        i++;
    snprintf(text, 32, s < 10 ? "%.2g %s" : "%.0f %s", s / units[i].seconds,
             units[i].name);
    return text;
}

/* Seconds of an execution at PROBE tokens, the best of a few, and its operations; NAN: it
 * cannot be had. */
static double probe(const struct lengths *w, const char *spec, double *flops)
{
    struct bench_input *inputs = NULL;
    struct turn         t = { 0 };
    double              took, best = NAN;
    foci_status         status = plan_turn(w, spec, PROBE, &t);

    *flops = t.flops;
    if (!status) status = open_job(w, &t, &inputs);
    for (int i = 0; i < PROBES && !status; i++) {
        status = execute(&t, &took);
        best = fmin(best, took);
    }
    close_turn(&t);
    bench_inputs_free(inputs);
    return status ? NAN : best;
}

/* Seconds of an execution: by the growth from length to length and by the growth of the
 * operations, whichever is more.  NAN: nothing is known. */
static double expect(const struct lengths *w, int spec, int i, double flops)
{
    double lengths[LENGTHS_MOST], costs[LENGTHS_MOST], known = NAN, counted = 0;

    for (int j = 0; j < i; j++) {
        const struct length_cell *c = length_cell(w, spec, j);
        lengths[j] = (double)w->length[j];
        costs[j] = c->measured ? c->seconds : NAN;
        if (!c->measured) continue;
        known = c->seconds;
        counted = c->flops;
    }
    if (isnan(known) && w->length[i] > FAR_FROM_PROBE)
        known = probe(w, w->specs[spec], &counted);
    const double by_growth = growth_predict(lengths, costs, i, (double)w->length[i]);
    const double by_flops = counted > 0 ? known * (flops / counted) : known;
    return fmax(by_growth, by_flops);
}

/*
 * Turns
 */

enum opened { OPENED, SKIPPED, LATER };

/* After the first executions, which are not counted unless there is no time for others. */
static foci_status warm(const struct lengths *w, struct turn *t)
{
    double      took;
    foci_status status = execute(t, &took);

    t->times = need((size_t)w->rounds, sizeof *t->times);
    t->spent = 2 * took;
    const double turn = fmin(turn_seconds, w->limit - t->spent);
    t->executions = (int)fmin(fmax(ceil(turn / took), 1), MOST_EXECUTIONS);
    if (t->spent + took > w->limit) t->times[t->n++] = took;
    return status;
}

/* Whether it may be opened; `beside`: others are. */
static enum opened admit(const struct lengths *w, int spec, int i, struct turn *t,
                         const struct bench_input *inputs, bool beside)
{
    struct length_cell *cell = length_cell(w, spec, i);
    double              bytes = 0;
    char                text[32], had[16];

    foci_status status = plan_turn(w, w->specs[spec], w->length[i], t);
    if (!status)
        status = bench_plan_bytes(t->plan, &t->c, on_device(w->ctx), inputs, &bytes);
    if (status) {
        skip(cell, "%s", foci_errmsg(w->ctx));
        return SKIPPED;
    }
    if (!bench_fits(bytes)) {
        if (beside) return LATER;
        skip(cell, "it needs %sB of memory, and %sB can be had", thousands(bytes, text),
             thousands(bench_most_memory(), had));
        return SKIPPED;
    }
    const double expected = 2 * expect(w, spec, i, t->flops);
    if (expected > w->limit) {
        skip(cell, "it would take about %s, and --time-limit is %g s",
             duration(expected, text), w->limit);
        return SKIPPED;
    }
    return OPENED;
}

static enum opened open_turn(const struct lengths *w, int spec, int i, struct turn *t,
                             struct bench_input **inputs, bool beside)
{
    struct length_cell *cell = length_cell(w, spec, i);

    *t = (struct turn){ .cell = cell };
    enum opened opened = admit(w, spec, i, t, *inputs, beside);
    if (opened == OPENED) {
        foci_status status = open_job(w, t, inputs);
        if (!status) status = warm(w, t);
        /* Memory of a device is known to suffice once it is there. */
        if (status == FOCI_ERR_MEMORY && beside)
            opened = LATER;
        else if (status) {
            skip(cell, "execution failed: %s", device_reason(w->ctx, status));
            opened = SKIPPED;
        }
    }
    if (opened != OPENED) close_turn(t);
    return opened;
}

static void take_turn(const struct lengths *w, struct turn *t)
{
    double total = 0, took = 0;

    if (t->cell->skipped || t->n == w->rounds) return;
    if (t->n && t->spent + t->times[t->n - 1] * t->executions > w->limit) return;
    for (int k = 0; k < t->executions; k++) {
        const foci_status status = execute(t, &took);
        if (status) {
            skip(t->cell, "execution failed: %s", device_reason(w->ctx, status));
            return;
        }
        total += took;
    }
    t->spent += total;
    t->times[t->n++] = total / t->executions;
}

/* The error of what the last execution left. */
static double error_of(const struct lengths *w, struct turn *t,
                       struct bench_input **inputs, struct length_exact *exact)
{
    if (!length_has_error(w, t->plan, &t->cell->untrained)) return NAN;
    if (t->job.there && device_fetch(&t->job.copy)) return NAN;
    if (!exact->o && length_exact_open(w, t->c.problem.len_k, inputs, exact)) {
        length_exact_close(exact);
        return NAN;
    }
    return length_error(w, exact, t->job.io.o);
}

static void finish(const struct lengths *w, struct turn *t, struct bench_input **inputs,
                   struct length_exact *exact)
{
    struct length_cell *c = t->cell;

    if (c->skipped) return;
    c->measured = true;
    c->rounds = t->n;
    c->seconds = bench_median(t->times, t->n);
    c->low = t->times[t->n / 4];
    c->high = t->times[t->n - 1 - t->n / 4];
    c->flops = t->flops;
    c->plan = (double)t->plan_bytes;
    c->error = error_of(w, t, inputs, exact);
    if (t->steps) {
        c->work = (double)bench_steps_work_bytes(t->steps);
        c->state = (double)bench_steps_state_bytes(t->steps);
        c->tensors = (double)foci_plan_param_floats(t->plan) * sizeof(float);
        return;
    }
    c->work = (double)foci_plan_work_bytes(t->plan);
    c->saved = (double)foci_plan_saved_bytes(t->plan);
    c->tensors = (double)bench_job_bytes(t->plan, t->job.pass, NULL);
}

/* The mechanisms from *spec on that fit beside each other; *spec is the next one then. */
static int open_turns(struct lengths *w, int *spec, int i, struct turn *turns,
                      struct bench_input **inputs)
{
    int n = 0;

    for (; *spec < w->n_specs; ++*spec) {
        struct length_cell *c = length_cell(w, *spec, i);
        if (c->measured || c->skipped) continue;
        const enum opened opened = open_turn(w, *spec, i, &turns[n], inputs, n > 0);
        if (opened == LATER) break;
        if (opened == OPENED) n++;
    }
    return n;
}

/* Whether results of length i are still to be measured. */
static bool waits(const struct lengths *w, int i)
{
    for (int spec = 0; spec < w->n_specs; spec++)
        if (!length_cell(w, spec, i)->measured) return true;
    return false;
}

int length_measure(struct lengths *w, int i, struct progress *progress)
{
    if (!waits(w, i)) return EXIT_OK;

    struct turn        *turns = need((size_t)w->n_specs, sizeof *turns);
    struct bench_input *inputs = NULL;
    struct length_exact exact = { 0 };
    char                text[64];
    int                 code = EXIT_OK;

    snprintf(text, sizeof text, "%lld tokens", (long long)w->length[i]);
    progress_at(progress, i, text);
    for (int spec = 0; spec < w->n_specs && !code;) {
        const int n = open_turns(w, &spec, i, turns, &inputs);
        for (int round = 0; round < w->rounds; round++)
            for (int k = 0; k < n; k++)
                take_turn(w, &turns[(round + k) % n]);
        for (int k = 0; k < n; k++) {
            finish(w, &turns[k], &inputs, &exact);
            close_turn(&turns[k]);
        }
        code = length_lines_write(w, i);
    }
    length_exact_close(&exact);
    bench_inputs_free(inputs);
    free(turns);
    return code;
}
