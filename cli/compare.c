/* compare.c -- foci compare: several mechanisms, trained and measured alike; one table. */
#include <stdlib.h>
#include <string.h>

#include "cli/compare.h"
#include "cli/comparison.h"
#include "cli/report.h"
#include "cli/train.h"

static const struct option options[] = {
    { .name = "attention",
      .arg = "SPEC",
      .help = "an arm: this attention in all blocks",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "arm",
      .arg = "TEXT",
      .help = "an arm, \"NAME: OPTIONS\", with any options of a model",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "baseline",
      .arg = "NAME",
      .help = "the arm that others are compared with (default the first)",
      .kind = KIND_TEXT },
    { .name = "seeds",
      .arg = "N",
      .help = "runs of each arm, with seeds that follow one another (default 3, of "
              "generated tasks 5)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 10000 },
    { .name = "seed",
      .arg = "N",
      .help = "the first one (default 1)",
      .kind = KIND_WHOLE,
      .min = 0,
      .max = 1e12 },
    { .name = "examples",
      .arg = "LIST",
      .help = "train on the first so many examples, as in 5k,10k,all (default all)",
      .kind = KIND_TEXT },
    { .name = "tune",
      .arg = "GRID",
      .help = "tune each arm on validation, as in lr=1e-4..1e-1:7,dropout=0.1,0.3; "
              "lr alone: seven rates over three decades",
      .kind = KIND_TEXT },
    { .name = "tune-seeds",
      .arg = "N",
      .help = "seeds by which the grid is judged (default 1)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 10000 },
    { .name = "axis",
      .arg = "LIST",
      .help = "an arm for each value of an argument of specs, as in features=16,32",
      .kind = KIND_TEXT },
    { .name = "metric",
      .arg = "NAME",
      .help = "accuracy, exact, bleu, chrf2, perplexity, bits_per_character, loss "
              "(default by the task)",
      .kind = KIND_TEXT },
    { .name = "margin",
      .arg = "X",
      .help = "differences up to here make none (default 2 points of accuracy, 1 BLEU, "
              "5 % of perplexity)",
      .kind = KIND_REAL,
      .min = 0,
      .max = 1e6 },
    { .name = "test",
      .arg = "FILE",
      .help = "test set, read once, when all runs are done (default the shipped or "
              "generated one)",
      .kind = KIND_TEXT },
    { .name = "test-target",
      .arg = "FILE",
      .help = "translations or labels of --test",
      .kind = KIND_TEXT },
    { .name = "out",
      .arg = "DIR",
      .help = "folder of the comparison (default foci-compare)",
      .kind = KIND_TEXT },
    { .name = "resume",
      .help = "go on with the comparison in --out; may add arms, seeds" },
    { .name = "retry", .help = "do runs again that failed" },
    { .name = "jobs",
      .arg = "N",
      .help = "runs side by side, which share the threads (default 1)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 256 },
    { .name = "part",
      .arg = "K/N",
      .help = "do the share K of N of the runs, from 1 on",
      .kind = KIND_TEXT },
    { .name = "within",
      .arg = "S",
      .help = "begin no run that would not end within so many seconds from now, as far "
              "as runs so far tell",
      .kind = KIND_REAL,
      .min = 0,
      .max = 1e9 },
    { .name = "test-done",
      .help = "measure and test the runs that are done, though others are missing, "
              "where their models will not stay" },
    { .name = "dry-run", .help = "list the runs, with an estimate of the time" },
    { .name = "markdown", .help = "print tables in Markdown" },
    OPTIONS_COMPARE_LENGTH,
    OPTION_DEVICE,
    { .name = "threads",
      .arg = "N",
      .help = "threads of all runs together (default $FOCI_THREADS, or one a core)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1024 },
    { .name = NULL },
};

/*
 * What was asked for
 */

/* "2/8" */
static int read_part(struct comparison *c)
{
    const char *text = opt_text(c->a, "part");
    int         k = 1, n = 1, end = 0;

    if (text && (sscanf(text, "%d/%d%n", &k, &n, &end) != 2 || text[end] || k < 1 ||
                 n < k || n > 100000))
        return usage_error(
            c->a,
            "--part is '%s'; it takes K/N, the share K of N, from 1/N to "
            "N/N",
            text);
    c->part = k - 1;
    c->parts = n;
    if (n == 1)
        snprintf(c->journal, sizeof c->journal, "results.jsonl");
    else
        snprintf(c->journal, sizeof c->journal, "results.%d-of-%d.jsonl", k, n);
    return EXIT_OK;
}

static int share_threads(struct comparison *c)
{
    const int all = (int)opt_int(c->a, "threads", foci_ctx_threads(c->ctx));

    c->jobs = (int)opt_int(c->a, "jobs", 1);
    c->threads = all / c->jobs > 1 ? all / c->jobs : 1;
    if (c->jobs > 1)
        note(c->a, "%d runs at once with %d thread%s each%s", c->jobs, c->threads,
             c->threads > 1 ? "s" : "",
             c->jobs > all ? ", more than --threads has" : "");
    return EXIT_OK;
}

/*
 * The work
 */

/* Say which arms cannot do the task; EXIT_FAILED if there is one. */
static int tell_refused(const struct comparison *c, size_t *able)
{
    int     code = EXIT_OK;
    size_t  i;
    json_t *arm;

    *able = 0;
    json_array_foreach(c->arms, i, arm)
    {
        if (plan_is_able(c, arm)) {
            ++*able;
            continue;
        }
        json_t       *run = plan_check(c, arm);
        const json_t *check = results_get(
            c->results, "checks", json_string_value(json_object_get(run, "id")));
        code = failure(c->a, "arm '%s' cannot do this and is left out: %s",
                       json_string_value(json_object_get(arm, "name")),
                       json_string_value(json_object_get(check, "reason")));
        json_decref(run);
    }
    return code;
}

/* What is left to do, where this process does a part. */
static void tell_parts(const struct comparison *c, bool complete, int64_t missing)
{
    if (!complete)
        note(c->a, "tuning is not over in other parts: when it is, --resume goes on");
    else if (missing)
        note(c->a, "runs that are not done, those of other parts among them: %lld",
             (long long)missing);
    else if (opt_flag(c->a, "test-done"))
        note(c->a, "all runs are done: foci report %s prints the table", c->out);
    else
        note(c->a,
             "all runs are done: foci compare --resume --out %s measures costs, tests, "
             "and prints the table",
             c->out);
}

/* Tuning, then the runs that it chose; at the end costs and the test set. */
static int do_runs(struct comparison *c)
{
    bool    complete;
    json_t *list = plan_tuning(c);
    int     code = runs_do(c, list);

    json_decref(list);
    if (!code && c->parts > 1) code = compare_folder_read(c);
    if (code) return code;
    list = plan_runs(c, &complete);
    code = runs_do(c, list);
    if (!code && c->parts > 1) code = compare_folder_read(c);
    const int64_t missing = runs_missing(c, list);
    const bool    all = complete && !missing && c->parts == 1;
    if (!code && c->parts > 1) tell_parts(c, complete, missing);
    if (!code && (all || opt_flag(c->a, "test-done"))) {
        code = runs_measure(c, list);
        if (!code && runs_have_test(c)) code = runs_test(c, list);
    }
    json_decref(list);
    return code;
}

static int work(struct comparison *c)
{
    size_t able;
    int    code = runs_check(c);

    if (code) return code;
    const int refused = tell_refused(c, &able);
    if (!able) return refused;
    if ((code = do_runs(c))) return code;
    if (c->parts > 1) return refused;
    json_t *summary = judge(c);
    if (!summary) return EXIT_FAILED;
    code = table_of_comparison(c->a, json_incref(summary), opt_flag(c->a, "markdown"));
    if (!code) code = report_of_comparison(c, summary);
    json_decref(summary);
    return code ? code : refused;
}

static int run_with(struct comparison *c, json_t *given)
{
    int code;

    c->ctx = open_ctx(c->a, (int)opt_int(c->a, "threads", 0));
    if (!c->ctx) return EXIT_FAILED;
    if ((code = read_part(c)) || (code = compare_folder_open(c, given)) ||
        (code = share_threads(c)))
        return code;
    if (opt_flag(c->a, "retry")) c->tried = json_object();
    if (opt_flag(c->a, "within")) c->until = seconds() + opt_real(c->a, "within", 0);
    hold_signals();
    code = opt_flag(c->a, "dry-run") ? runs_print(c) : work(c);
    if (signal_waits()) fflush(stdout);
    release_signals();
    return code;
}

static int by_training(const struct args *a)
{
    const char       *out = opt_text(a, "out");
    struct comparison c = { .a = a,
                            .out = out ? out : "foci-compare",
                            .results = results_create(),
                            .locks = { -1, -1 } };
    json_t           *given = definition_read(a);

    const int code = given ? run_with(&c, given) : EXIT_USAGE;
    compare_folder_close(&c);
    json_decref(given);
    json_decref(c.definition);
    json_decref(c.arms);
    json_decref(c.results);
    json_decref(c.tried);
    foci_ctx_free(c.ctx);
    return code;
}

static int run(const struct args *a)
{
    return opt_text(a, "length") ? compare_length(a) : by_training(a);
}

static const char *const examples[] = {
    "foci compare mqar --attention softmax --attention linear --attention retention",
    "foci compare lm --attention 8L --attention 7F+1L --heads 8 --tune lr --out "
    "patterns",
    "foci compare translate --data pairs.tsv --examples 1k,5k,all --attention softmax "
    "--arm \"frozen: --encoder-attention 'softmax frozen(orthogonal)'\"",
    "foci compare mqar --attention performer --axis features=16,32,64 --jobs 4",
    "foci compare --resume --out patterns --attention local --seeds 5",
    "foci compare --length 1k,4k,16k",
    "foci compare --length 1k,2k,4k,8k --attention linear --attention "
    "'local(window=256)' --causal --pass both",
    NULL,
};

const struct verb verb_compare = {
    .name = "compare",
    .run = run,
    .summary = "train and measure several mechanisms alike, or time them over lengths",
    .usage = "TASK",
    .min_words = 0,
    .max_words = 1,
    .options = options,
    .shared = train_options,
    .examples = examples,
    .notes =
        "TASK is lm, mlm, translate, classify, or one that foci task lists.  Options "
        "of "
        "foci train are the same for all arms.  Each run is a process of its own, foci "
        "train and then foci eval, and its result a line of DIR/results.jsonl; what is "
        "interrupted goes on by --resume, with nothing done twice.  docs/comparing.md "
        "says how results are judged, and how runs are spread over machines.\n\n"
        "With --length nothing is trained.  At each length the mechanisms, and "
        "softmax, "
        "take turns in rounds, on 8 heads of 64 unless --heads and --dim say "
        "otherwise; "
        "times are medians.  Memory is that of tensors, scratch, what is saved for "
        "backward, and the plan.  The error is that of the outputs against exact "
        "attention in f32, of up to 256 rows, on standard normal queries, keys and "
        "values: |o - o'| / |o'|.  It stands in parentheses, as it says nothing, where "
        "weights have yet to be trained or are not made of queries and keys.  "
        "Crossings "
        "are interpolated between lengths.  What does not fit in memory, or would take "
        "longer than --time-limit (default 60) by the growth so far, is left out, with "
        "the reason.",
};
