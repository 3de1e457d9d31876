/* compare.c -- foci compare: several mechanisms, trained and measured alike; one table. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/comparison.h"
#include "cli/train.h"
#include "foci/file.h"

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
      .help = "runs of each arm, with seeds that follow one another (default 3)",
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
    { .name = "dry-run", .help = "list the runs, with an estimate of the time" },
    { .name = "markdown", .help = "print tables in Markdown" },
    { .name = "threads",
      .arg = "N",
      .help = "threads of all runs together (default $FOCI_THREADS, or one a core)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1024 },
    { .name = NULL },
};

/*
 * The folder
 */

/* Several processes may do parts; one alone does the whole. */
static int open_lock(struct comparison *c, int i, const char *name, int how)
{
    enum { TRIES = 60 }; /* children of a runner that was killed take a moment */
    const struct timespec wait = { .tv_nsec = 50000000 };
    char                 *path = compare_text("%s/%s", c->out, name);

    c->locks[i] = open(path, O_RDWR | O_CREAT, 0666); /* children have it too */
    const int error = errno;
    int       code = c->locks[i] < 0
                         ? failure(c->a, "%s: cannot be opened: %s", path, strerror(error))
                         : EXIT_OK;
    free(path);
    for (int t = 0; !code && flock(c->locks[i], how | LOCK_NB); t++) {
        if (t == TRIES)
            return failure(c->a,
                           "another foci compare is at work in %s; spread runs over "
                           "several by --part",
                           c->out);
        nanosleep(&wait, NULL);
    }
    return code;
}

static int lock(struct comparison *c)
{
    char name[64];

    if (c->parts == 1) return open_lock(c, 0, "lock", LOCK_EX);
    snprintf(name, sizeof name, "lock.%d-of-%d", c->part + 1, c->parts);
    const int code = open_lock(c, 0, "lock", LOCK_SH);
    return code ? code : open_lock(c, 1, name, LOCK_EX);
}

static void unlock(struct comparison *c)
{
    for (int i = 0; i < 2; i++)
        if (c->locks[i] >= 0) close(c->locks[i]);
}

/* Of parts that begin at once one writes the definition: a link is made once. */
static int write_definition(struct comparison *c, bool first)
{
    char *path = compare_text("%s/compare.json", c->out);
    char *own = compare_text("%s/compare.json.%ld", c->out, (long)getpid());
    char *text = json_dumps(c->definition, JSON_INDENT(2));
    char *lines = compare_text("%s\n", text);

    const foci_status status =
        foci_file_write(c->ctx, first ? own : path, lines, strlen(lines));
    int code = status ? library_error(c->a, c->ctx, status, NULL) : EXIT_OK;
    if (!code && first) {
        if (link(own, path) && errno != EEXIST)
            code = failure(c->a, "%s: cannot be written: %s", path, strerror(errno));
        (void)unlink(own);
    }
    free(lines);
    free(text);
    free(own);
    free(path);
    return code;
}

/* The folder has a definition: what is given may add to it. */
static int join(struct comparison *c, json_t *stored, const json_t *given)
{
    bool changed = false;

    c->definition = stored;
    int code = definition_merge(c->a, stored, given, c->out, &changed);
    if (code || !changed || opt_flag(c->a, "dry-run")) return code;
    if (c->parts > 1)
        return usage_error(
            c->a, "%s has fewer arms or seeds: add them once without --part", c->out);
    return write_definition(c, false);
}

static int begin(struct comparison *c, json_t *given)
{
    int code = definition_complete(c->a, c->ctx, given);

    if (code || opt_flag(c->a, "dry-run")) {
        c->definition = json_incref(given);
        return code;
    }
    json_t *copy = json_deep_copy(given);
    c->definition = copy;
    if ((code = write_definition(c, true))) return code;
    json_t *stored = definition_load(c->a, c->out, &code);
    if (!stored) return code ? code : EXIT_FAILED;
    code = join(c, stored, given);
    json_decref(copy);
    return code;
}

/* Whether something was done here; with a part, by this part. */
static bool has_results(const struct comparison *c)
{
    if (c->parts == 1) {
        json_t *all = json_object_get(c->results, "runs");
        return json_object_size(all) > 0;
    }
    char      *path = compare_text("%s/%s", c->out, c->journal);
    const bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

static int read_results(struct comparison *c)
{
    const char *version = foci_version();
    const bool  dry = opt_flag(c->a, "dry-run");

    return results_load(c->a, c->results, c->out, dry ? NULL : c->journal, &version);
}

/* The definition and the results so far. */
static int open_folder(struct comparison *c, json_t *given)
{
    const bool dry = opt_flag(c->a, "dry-run");
    int        code = EXIT_OK;

    if (!dry && mkdir(c->out, 0777) && errno != EEXIST)
        return failure(c->a, "%s: cannot be made: %s", c->out, strerror(errno));
    if (!dry && (code = lock(c))) return code;
    json_t *stored = definition_load(c->a, c->out, &code);
    if (code) return code;
    if (!stored && opt_flag(c->a, "resume") &&
        !json_array_size(json_object_get(given, "arms")))
        return failure(c->a, "%s has no comparison to go on with", c->out);
    if (!stored) return begin(c, given);
    if ((code = read_results(c))) {
        json_decref(stored);
        return code;
    }
    if (!dry && !opt_flag(c->a, "resume") && has_results(c)) {
        json_decref(stored);
        return failure(c->a,
                       "%s has a comparison already: --resume goes on with it, another "
                       "--out begins anew",
                       c->out);
    }
    return join(c, stored, given);
}

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
             c->jobs > all ? ", more than there are cores" : "");
    return EXIT_OK;
}

/* The baseline is an arm, or what an axis made arms of. */
static int check_baseline(struct comparison *c)
{
    const json_t *name = json_object_get(c->definition, "baseline");
    size_t        i;
    json_t       *arm;

    json_array_foreach(c->arms, i, arm)
    {
        if (json_equal(json_object_get(arm, "name"), (json_t *)name) ||
            json_equal(json_object_get(arm, "base"), (json_t *)name))
            return EXIT_OK;
    }
    return usage_error(c->a, "--baseline is '%s', and no arm has this name",
                       json_string_value(name));
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

/* Tuning, then the runs that it chose; *all: those of all parts are done. */
static int do_runs(struct comparison *c, bool *all)
{
    bool    complete;
    json_t *list = plan_tuning(c);
    int     code = runs_do(c, list);

    json_decref(list);
    if (!code && c->parts > 1) code = read_results(c);
    if (code) return code;
    list = plan_runs(c, &complete);
    code = runs_do(c, list);
    if (!code && c->parts > 1) code = read_results(c);
    const int64_t missing = runs_missing(c, list);
    *all = complete && !missing;
    if (!code && !complete)
        note(c->a, "tuning is not over in other parts: when it is, --resume goes on");
    else if (!code && missing)
        note(c->a, "%lld runs of other parts are not done", (long long)missing);
    else if (!code && c->parts > 1)
        note(c->a,
             "all runs are done: foci compare --resume --out %s measures costs, tests, "
             "and prints the table",
             c->out);
    if (!code && *all && c->parts == 1) {
        code = runs_measure(c, list);
        if (!code && runs_have_test(c)) code = runs_test(c, list);
    }
    json_decref(list);
    return code;
}

static int work(struct comparison *c)
{
    bool   all;
    size_t able;
    int    code = runs_check(c);

    if (code) return code;
    const int refused = tell_refused(c, &able);
    if (!able) return refused;
    if ((code = do_runs(c, &all))) return code;
    if (c->parts > 1) return refused;
    json_t *summary = judge(c);
    if (!summary) return EXIT_FAILED;
    code = table_of_comparison(c->a, summary, opt_flag(c->a, "markdown"));
    return code ? code : refused;
}

static int run_with(struct comparison *c, json_t *given)
{
    int code;

    c->ctx = open_ctx(c->a, (int)opt_int(c->a, "threads", 0));
    if (!c->ctx) return EXIT_FAILED;
    if ((code = read_part(c)) || (code = open_folder(c, given)) ||
        (code = share_threads(c)))
        return code;
    c->arms = arms_expand(c->a, c->ctx, c->definition);
    if (!c->arms) return EXIT_USAGE;
    if ((code = check_baseline(c))) return code;
    if (opt_flag(c->a, "retry")) c->tried = json_object();
    hold_signals();
    code = opt_flag(c->a, "dry-run") ? runs_print(c) : work(c);
    if (signal_waits()) fflush(stdout);
    release_signals();
    return code;
}

static int run(const struct args *a)
{
    const char       *out = opt_text(a, "out");
    struct comparison c = { .a = a,
                            .out = out ? out : "foci-compare",
                            .results = results_create(),
                            .locks = { -1, -1 } };
    json_t           *given = definition_read(a);

    const int code = given ? run_with(&c, given) : EXIT_USAGE;
    unlock(&c);
    json_decref(given);
    json_decref(c.definition);
    json_decref(c.arms);
    json_decref(c.results);
    json_decref(c.tried);
    foci_ctx_free(c.ctx);
    return code;
}

static const char *const examples[] = {
    "foci compare mqar --attention softmax --attention linear --attention retention",
    "foci compare lm --attention 8L --attention 7F+1L --heads 8 --tune lr --out "
    "patterns",
    "foci compare translate --data pairs.tsv --examples 1k,5k,all --attention softmax "
    "--arm \"frozen: --encoder-attention 'softmax frozen(orthogonal)'\"",
    "foci compare mqar --attention performer --axis features=16,32,64 --jobs 4",
    "foci compare --resume --out patterns --attention local --seeds 5",
    NULL,
};

const struct verb verb_compare = {
    .name = "compare",
    .run = run,
    .summary = "train and measure several mechanisms alike, over several seeds",
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
        "says how results are judged, and how runs are spread over machines.",
};
