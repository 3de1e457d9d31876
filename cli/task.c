/* task.c -- foci task: what generated tasks are, their examples, and the accuracy of trivial
 * rules on them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/floors.h"
#include "cli/train.h"

enum { SHOWN = 10, JUDGED = 10000 };

/* Text that grows. */
struct task_text {
    char  *at;
    size_t n, cap;
};

static void add(struct task_text *t, const char *from, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        const size_t cap = 2 * (t->n + n + 1) + 256;
        char        *bigger = need(cap, 1);
        if (t->n) memcpy(bigger, t->at, t->n);
        free(t->at);
        t->at = bigger;
        t->cap = cap;
    }
    if (n) memcpy(t->at + t->n, from, n);
    t->n += n;
    t->at[t->n] = '\0';
}

static void add_text(struct task_text *t, const char *from)
{
    add(t, from, strlen(from));
}

/*
 * The list of tasks
 */

static void print_number(char text[32], double x) { snprintf(text, 32, "%.10g", x); }

/* The preset of an argument. */
static const char *preset(const foci_arg_def *d, char text[32])
{
    if (!d->choices)
        print_number(text, d->preset);
    else
        snprintf(text, 32, "%.*s", (int)strcspn(d->choices, "|"), d->choices);
    return text;
}

static const char *range(const foci_arg_def *d, char text[96])
{
    char least[32], most[32];

    if (d->choices) return d->choices;
    print_number(least, d->min);
    print_number(most, d->max);
    snprintf(text, 96, "%s to %s", least, most);
    return text;
}

static json_t *json_task(const foci_task_info *t)
{
    json_t *args = json_array();

    for (size_t i = 0; i < t->n_args; i++) {
        const foci_arg_def *d = &t->args[i];
        char                value[32], all[96];
        json_array_append_new(args, json_pack("{s:s, s:s, s:s, s:s}", "name", d->name,
                                              "default", preset(d, value), "values",
                                              range(d, all), "help", d->help));
    }
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:i, s:o}", "name", t->name, "summary", t->summary,
                  "source", t->source, "version", t->version, "arguments", args);
    if (t->preset) json_object_set_new(o, "preset", json_string(t->preset));
    if (t->published) json_object_set_new(o, "published", json_string(t->published));
    return o;
}

/* A row for each argument of a task. */
static void table_arguments(struct output_table *t, const foci_task_info *info)
{
    for (size_t i = 0; i < info->n_args; i++) {
        const foci_arg_def *d = &info->args[i];
        char                value[32], all[96];
        table_cell(t, "  %s=%s", d->name, preset(d, value));
        table_cell(t, "%s", d->help);
        table_cell(t, "%s", range(d, all));
    }
}

static int list_tasks(const struct args *a)
{
    foci_task_info       info = { FOCI_SIZED(foci_task_info) };
    struct output_table *table = table_create("lll");
    json_t              *list = json_array();

    for (int i = 0; i < foci_task_count(); i++) {
        (void)foci_task(i, &info);
        if (a->json) {
            json_array_append_new(list, json_task(&info));
            continue;
        }
        table_cell(table, "%s", info.name);
        table_cell(table, "%s", info.summary);
        table_cell(table, "%s", "");
        table_arguments(table, &info);
    }
    if (a->json) {
        table_free(table);
        return print_json(a, list);
    }
    table_print(table, stdout);
    table_free(table);
    json_decref(list);
    return EXIT_OK;
}

/* A text may say _ for the - of a name. */
static bool is_name(const char *name, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || name[i] != (text[i] == '_' ? '-' : text[i])) return false;
    return !name[n];
}

bool task_find(const char *text, foci_task_info *info)
{
    const size_t n = strcspn(text, "( ");

    for (int i = 0; i < foci_task_count(); i++) {
        (void)foci_task(i, info);
        if (is_name(info->name, text, n)) return true;
    }
    return false;
}

const char *task_names(void)
{
    enum { WIDTH = 78 };
    static char    text[4096];
    foci_task_info info = { FOCI_SIZED(foci_task_info) };
    size_t         n = 0, column = 0;

    n = column = (size_t)snprintf(text, sizeof text, "Generators:");
    for (int i = 0; i < foci_task_count(); i++) {
        (void)foci_task(i, &info);
        const size_t len = strlen(info.name) + 2;
        const bool   fits = column + len <= WIDTH;
        if (n + len + 64 > sizeof text) break;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s", fits ? " " : "\n",
                              info.name, i + 1 < foci_task_count() ? "," : ".");
        column = fits ? column + len : len - 1;
    }
    snprintf(text + n, sizeof text - n, "\nfoci task NAME says more of one.");
    return text;
}

/*
 * Examples
 */

/* "NAME(ARG=VALUE, ...)" of the words of the command line. */
static char *task_text(const struct args *a)
{
    struct task_text t = { 0 };

    add_text(&t, a->words[0]);
    for (int i = 1; i < a->n_words; i++) {
        add_text(&t, i == 1 ? "(" : ", ");
        add_text(&t, a->words[i]);
    }
    if (a->n_words > 1) add_text(&t, ")");
    return t.at;
}

/* Ids as text, to be freed. */
static char *ids_text(const foci_data *d, int side, const int32_t *ids, int64_t n)
{
    const int bytes = foci_data_text(d, side, ids, n, NULL, 0);
    char     *text = need((size_t)bytes + 1, 1);

    (void)foci_data_text(d, side, ids, n, text, (size_t)bytes + 1);
    return text;
}

/* "8=5386 12=4804": what is to be said at which position. */
static char *labels_text(const foci_data *d, const foci_batch *b)
{
    struct task_text t = { 0 };

    add_text(&t, "");
    for (int64_t i = 0; i < b->n_labels; i++) {
        char  place[32];
        char *label = ids_text(d, 0, &b->labels[b->label_at[i]], 1);
        snprintf(place, sizeof place, "%s%" PRId64 "=", i ? " " : "", b->label_at[i]);
        add_text(&t, place);
        add_text(&t, *label ? label : "<eos>");
        free(label);
    }
    return t.at;
}

/*
 * One task
 */

static const char *floor_name(foci_data *d, int i)
{
    foci_floor floor = { FOCI_SIZED(foci_floor) };
    return foci_data_floor(d, i, 1, &floor) ? "" : floor.name;
}

static void add_name(struct task_text *t, const char *name)
{
    if (t->n) add_text(t, ", ");
    add_text(t, name);
}

/* A title, and a line below it unless it is empty or NULL. */
static void print_section(const char *title, const char *line)
{
    if (line && *line) printf("\n%s\n  %s\n", title, line);
}

static int describe(foci_data *d)
{
    foci_task_info       info = { FOCI_SIZED(foci_task_info) };
    struct output_table *table = table_create("lll");
    struct task_text     slices = { 0 }, floors = { 0 };
    char                 name[512];

    (void)foci_data_task(d, name, sizeof name);
    (void)task_find(name, &info);
    for (int i = 0; i < foci_data_slice_count(d); i++)
        add_name(&slices, foci_data_slice(d, i));
    for (int i = 0; i < foci_data_floor_count(d); i++)
        add_name(&floors, floor_name(d, i));
    printf("%s: %s\n%s; version %d\n\nArguments\n", info.name, info.summary,
           info.source, info.version);
    table_arguments(table, &info);
    table_print(table, stdout);
    table_free(table);
    print_section("Results are reported by", slices.at);
    print_section("Rules that have learned nothing (--floors)", floors.at);
    print_section("Preset of foci train, for a CPU", info.preset);
    print_section("As published (--preset published)", info.published);
    printf("\nSome examples: foci task %s --count 3\n", info.name);
    free(slices.at);
    free(floors.at);
    return EXIT_OK;
}

static json_t *json_description(foci_data *d)
{
    foci_task_info info = { FOCI_SIZED(foci_task_info) };
    char           name[512];
    json_t        *slices = json_array(), *floors = json_array();

    (void)foci_data_task(d, name, sizeof name);
    (void)task_find(name, &info);
    for (int i = 0; i < foci_data_slice_count(d); i++)
        json_array_append_new(slices, json_string(foci_data_slice(d, i)));
    for (int i = 0; i < foci_data_floor_count(d); i++)
        json_array_append_new(floors, json_string(floor_name(d, i)));
    json_t *o = json_task(&info);
    json_object_set_new(o, "slices", slices);
    json_object_set_new(o, "floors", floors);
    return o;
}

/*
 * Many examples
 */

/* The example of a batch of one, in two columns: what is given and what is wanted, but of
 * classes the label in front. */
struct task_columns {
    char *first, *second;
};

static struct task_columns columns_of(const foci_data *d, const foci_batch *b)
{
    struct task_columns c;

    if (b->source_ids) {
        c.first = ids_text(d, 1, b->source_ids, b->source_lens[0]);
        c.second = ids_text(d, 0, b->ids, b->lens[0]);
    } else if (b->classes) {
        c.first = need(32, 1);
        snprintf(c.first, 32, "%d", (int)b->classes[0]);
        c.second = ids_text(d, 0, b->ids, b->lens[0]);
    } else {
        c.first = ids_text(d, 0, b->ids, b->lens[0]);
        c.second = labels_text(d, b);
    }
    return c;
}

static void free_examples(struct task_columns *all, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        free(all[i].first);
        free(all[i].second);
    }
    free(all);
}

/* All examples in their order; [count]. */
static struct task_columns *read_examples(const struct args *a, foci_ctx *ctx,
                                          foci_data *d, int64_t count)
{
    struct task_columns *all = need((size_t)count, sizeof *all);

    for (;;) {
        foci_batch b = { FOCI_SIZED(foci_batch) };
        if (foci_data_next(d, &b)) {
            library_error(a, ctx, FOCI_ERR_FILE, NULL);
            free_examples(all, count);
            return NULL;
        }
        if (!b.batch) return all;
        all[b.examples[0]] = columns_of(d, &b);
    }
}

/* What a written file says of itself in its first line. */
static struct task_text header(const struct args *a, const foci_data *d, int64_t count,
                               const struct task_text *lines)
{
    static const char *const splits[] = { "train", "valid", "test" };
    uint64_t                 sum = UINT64_C(0xcbf29ce484222325);
    foci_task_info           info = { FOCI_SIZED(foci_task_info) };
    struct task_text         t = { 0 };
    char                     name[512], rest[200];

    (void)foci_data_task(d, name, sizeof name);
    (void)task_find(name, &info);
    for (size_t i = 0; i < lines->n; i++) /* FNV-1a */
        sum = (sum ^ (unsigned char)lines->at[i]) * UINT64_C(0x100000001b3);
    snprintf(rest, sizeof rest,
             ", version %d, seed %" PRId64 ", split %s, %" PRId64
             " examples, checksum %016" PRIx64 "\n",
             info.version, opt_int(a, "seed", 1), splits[opt_word(a, "split", 0)],
             count, sum);
    add_text(&t, "# foci task ");
    add_text(&t, name);
    add_text(&t, rest);
    return t;
}

static int write_examples(const struct args *a, foci_ctx *ctx, const foci_data *d,
                          const struct task_columns *all, int64_t count)
{
    const char      *path = opt_text(a, "out");
    struct task_text lines = { 0 };

    for (int64_t i = 0; i < count; i++) {
        add_text(&lines, all[i].first);
        add_text(&lines, "\t");
        add_text(&lines, all[i].second);
        add_text(&lines, "\n");
    }
    struct task_text file = header(a, d, count, &lines);
    add(&file, lines.at, lines.n);
    const foci_status status = foci_file_write(ctx, path, file.at, file.n);
    free(lines.at);
    free(file.at);
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}

static int show_examples(const struct args *a, foci_data *d,
                         const struct task_columns *all, int64_t count)
{
    foci_data_info info = { FOCI_SIZED(foci_data_info) };
    char           name[512];

    if (!a->json) {
        for (int64_t i = 0; i < count; i++)
            printf("%s\t%s\n", all[i].first, all[i].second);
        return EXIT_OK;
    }
    (void)foci_data_task(d, name, sizeof name);
    (void)foci_data_get_info(d, &info);
    const bool  classes = info.kind == FOCI_DATA_CLASSIFY;
    const char *first = classes                            ? "class"
                        : info.kind == FOCI_DATA_TRANSLATE ? "source"
                                                           : "text";
    const char *second = classes                            ? "text"
                         : info.kind == FOCI_DATA_TRANSLATE ? "target"
                                                            : "labels";
    json_t     *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", first, all[i].first, second, all[i].second));
    json_t *shown = a->n_given || a->n_words > 1 ? json_object() : json_description(d);
    json_object_set_new(shown, "task", json_string(name));
    json_object_set_new(shown, "examples", list);
    return print_json(a, shown);
}

static int examples_of(const struct args *a, foci_ctx *ctx, foci_data *d, int64_t count)
{
    struct task_columns *all = read_examples(a, ctx, d, count);

    if (!all) return EXIT_FAILED;
    const int status = opt_text(a, "out") ? write_examples(a, ctx, d, all, count)
                                          : show_examples(a, d, all, count);
    free_examples(all, count);
    return status;
}

/*
 * Floors
 */

static int floors_of(const struct args *a, foci_ctx *ctx, foci_data *d, int64_t count)
{
    struct output_table *table = table_create("lr");
    json_t              *list = json_array();
    struct floors        floors;
    const int            code = floors_read(a, ctx, d, count, &floors);

    for (int i = 0; i < floors.n; i++) {
        const foci_floor *f = &floors.floor[i];
        table_pair(table, f->name, "%.2f %%", 100 * f->accuracy);
        json_array_append_new(
            list, json_pack("{s:s, s:f}", "rule", f->name, "accuracy", f->accuracy));
    }
    if (!code && !a->json) table_print(table, stdout);
    table_free(table);
    floors_free(&floors);
    if (!code && a->json) return print_json(a, list);
    json_decref(list);
    return code;
}

static int run(const struct args *a)
{
    if (a->n_words == 0) return list_tasks(a);

    const bool floors = opt_flag(a, "floors");
    /* A name alone asks what it is. */
    const bool plain =
        !a->json && !a->n_given && a->n_words == 1 && !strchr(a->words[0], '(');
    const int64_t     count = opt_int(a, "count", floors ? JUDGED : SHOWN);
    foci_ctx         *ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    char             *text = task_text(a);
    foci_data        *d = NULL;
    foci_data_options o = { FOCI_SIZED(foci_data_options),
                            .kind = FOCI_DATA_TASK,
                            .task = text,
                            .split = (foci_data_split)opt_word(a, "split", 0),
                            .batch = 1,
                            .order = FOCI_DATA_ORDER_ONCE,
                            .examples = count,
                            .seed = (uint64_t)opt_int(a, "seed", 1) };
    int               status = EXIT_FAILED;

    if (floors && opt_text(a, "out")) {
        status = usage_error(a, "--out is for examples, and --floors prints none");
    } else if (ctx) {
        const foci_status opened = foci_data_open(ctx, &o, &d);
        status = opened   ? library_error(a, ctx, opened, NULL)
                 : floors ? floors_of(a, ctx, d, count)
                 : plain  ? describe(d)
                          : examples_of(a, ctx, d, count);
    }
    foci_data_free(d);
    foci_ctx_free(ctx);
    free(text);
    return status;
}

static const struct option options[] = {
    { .name = "split",
      .arg = "NAME",
      .help = "the random stream: train (default), valid, test",
      .kind = KIND_WORD,
      .words = "train|valid|test" },
    { .name = "count",
      .arg = "N",
      .help = "examples (default 10; of --floors 10000)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 30 },
    { .name = "seed",
      .arg = "N",
      .help = "of all random streams (default 1)",
      .kind = KIND_WHOLE,
      .min = 0,
      .max = MOST_WHOLE },
    { .name = "out",
      .arg = "FILE",
      .help = "write them, below a line that says what they are",
      .kind = KIND_TEXT },
    { .name = "floors", .help = "print the accuracy of rules that learn nothing" },
    OPTION_THREADS,
    { .name = NULL },
};

static const char *const examples[] = {
    "foci task",
    "foci task mqar",
    "foci task numbers to=vi --count 3",
    "foci task listops depth=6 arguments=6 least=16 most=199 --floors",
    "foci task 'mqar(length=32, filler=noise)' --split test --out mqar.tsv",
    NULL,
};

const struct verb verb_task = {
    .name = "task",
    .run = run,
    .summary = "examples of generated tasks",
    .usage = "[NAME [ARG=VALUE...]]",
    .min_words = 0,
    .max_words = -1,
    .options = options,
    .examples = examples,
    .notes = "Without NAME all tasks are listed with their arguments; NAME alone says "
             "what a task is.\nElse a line is an example:\n"
             "SOURCE<TAB>TARGET, CLASS<TAB>TEXT, or TEXT<TAB>LABELS, where a label is\n"
             "POSITION=SYMBOL.  Example i of a split follows from task, arguments, "
             "seed and i\n"
             "alone.  Wherever data are given, --task 'NAME(ARG=VALUE, ...)' takes "
             "their place.",
};
