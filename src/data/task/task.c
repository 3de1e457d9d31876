/* task.c -- generators: which there are, their texts, memory for examples, making them.
 *
 * Text is parsed by the reader of specs, so that arguments and messages are those of
 * mechanisms.
 */
#include <string.h>

#include "data/task/task.h"
#include "plan/spec.h"

const struct task_def *const task_list[] = {
#define TASK(name) &task_##name,
#include "data/task/tasks.def"
#undef TASK
    NULL,
};

int foci_task_count(void) { return (int)(sizeof task_list / sizeof *task_list) - 1; }

foci_status foci_task(int i, foci_task_info *info)
{
    if (i < 0 || i >= foci_task_count())
        return ctx_fail(NULL, FOCI_ERR_ARG, "task %d: there are %d", i,
                        foci_task_count());
    const struct task_def *def = task_list[i];
    const foci_task_info   whole = { FOCI_SIZED(foci_task_info), .name = def->name,
                                     .summary = def->summary,    .source = def->source,
                                     .args = def->args,          .n_args = def->n_args,
                                     .version = def->version,    .preset = def->preset,
                                     .published = def->published };

    return sized_out(NULL, "foci_task_info", info, &whole, sizeof whole);
}

/*
 * Texts
 */

static foci_status unknown(const struct spec_reader *r, struct text_span name)
{
    struct nearest near = { .word = name };

    for (int i = 0; task_list[i]; i++)
        nearest_offer_text(&near, task_list[i]->name);
    return reader_fail(r, name.s, "unknown task %s%s", span_quote(name).text,
                       nearest_hint(&near, "; \"foci task\" names all there are").text);
}

/* Words that hyphens may join. */
static struct text_span read_name(struct spec_reader *r)
{
    struct text_span name = reader_name(r);

    while (name.len && r->at < r->end && *r->at == '-') {
        r->at++;
        (void)reader_name(r);
        name.len = (size_t)(r->at - name.s);
    }
    return name;
}

/* In names of tasks a hyphen is as good as an underscore. */
static bool is_name(struct text_span a, const char *name)
{
    if (strlen(name) != a.len) return false;
    for (size_t i = 0; i < a.len; i++)
        if (a.s[i] != name[i] && (a.s[i] != '_' || name[i] != '-')) return false;
    return true;
}

static foci_status read_task(struct spec_reader *r, struct task *t)
{
    reader_blanks(r);
    const char            *start = r->at;
    const struct text_span name = read_name(r);

    if (!name.len)
        return reader_fail(r, start, "the name of a task is wanted, such as %s",
                           task_list[0]->name);
    for (int i = 0; task_list[i] && !t->def; i++)
        if (is_name(name, task_list[i]->name)) t->def = task_list[i];
    if (!t->def) return unknown(r, name);

    const struct owner owner = { .name = t->def->name,
                                 .args = t->def->args,
                                 .n_args = t->def->n_args,
                                 .arg = t->arg };
    TRY(reader_args(r, start, &owner));
    reader_blanks(r);
    if (r->at == r->end) return FOCI_OK;
    const struct text_span rest = { r->at, (size_t)(r->end - r->at) };
    return reader_fail(r, r->at, "%s is not expected after the task",
                       span_quote(rest).text);
}

foci_status task_parse(foci_ctx *ctx, const char *text, struct task *t)
{
    *t = (struct task){ 0 };
    if (!text) return ctx_fail(ctx, FOCI_ERR_ARG, "no task is given");
    if (!memchr(text, 0, SPEC_MAX + 1))
        return ctx_fail(ctx, FOCI_ERR_SPEC, "the task has more than %d characters",
                        SPEC_MAX);
    struct spec_reader r = { ctx, text, text, text + strlen(text), "task: " };
    TRY(read_task(&r, t));

    const char *wrong = t->def->plan(t);
    if (wrong) return ctx_fail(ctx, FOCI_ERR_SPEC, "%s: %s", t->def->name, wrong);
    if (!t->n_table) return FOCI_OK;
    t->table = ctx_alloc(ctx, (size_t)t->n_table, sizeof *t->table);
    if (!t->table) return FOCI_ERR_MEMORY;
    t->def->fill(t, t->table);
    return FOCI_OK;
}

void task_free(foci_ctx *ctx, struct task *t)
{
    if (t->table) ctx_free(ctx, t->table, (size_t)t->n_table, sizeof *t->table);
    t->table = NULL;
}

int task_print(const struct task *t, char *text, size_t cap)
{
    struct printer      out = { .at = text, .cap = cap };
    const foci_arg_def *args = t->def->args;

    printer_add(&out, "%s", t->def->name);
    for (size_t i = 0; i < t->def->n_args; i++) {
        struct text_span word;
        char             number[32];

        printer_add(&out, "%s%s=", i ? ", " : "(", args[i].name);
        if (args[i].choices && word_at(args[i].choices, (int)t->arg[i], &word)) {
            printer_add(&out, "%.*s", (int)word.len, word.s);
        } else {
            number_print(t->arg[i], number);
            printer_add(&out, "%s", number);
        }
    }
    if (t->def->n_args) printer_add(&out, ")");
    return out.used;
}

int task_n_slices(const struct task *t)
{
    int n = 0;
    while (t->def->slices && t->def->slices[n])
        n++;
    return n;
}

/*
 * Examples
 */

struct rng task_stream(uint64_t seed, foci_data_split split, int64_t index)
{
    const uint64_t key = rng_absorb(seed, (uint64_t)split + 1);
    return (struct rng){ .state = rng_absorb(key, (uint64_t)index + 1) };
}

struct rng task_run_stream(uint64_t seed, foci_data_split split, int64_t run)
{
    const uint64_t key = rng_absorb(rng_absorb(seed, (uint64_t)split + 1), 0);
    return (struct rng){ .state = rng_absorb(key, (uint64_t)run + 1) };
}

struct rng task_table_stream(uint64_t number)
{
    return (struct rng){ .state = rng_absorb(number, 0) };
}

/* Where the parts of an example lie in its memory; a null arena counts. */
static struct task_example task_carve(const struct task *t, struct arena *a)
{
    const bool          classes = t->kind == FOCI_DATA_CLASSIFY;
    struct task_example e = { 0 };

    e.ids = arena_alloc(a, t->len, sizeof *e.ids);
    e.labels = arena_alloc(a, classes ? 0 : t->len, sizeof *e.labels);
    e.source = arena_alloc(a, t->source_len, sizeof *e.source);
    e.slices =
        arena_alloc(a, task_n_slices(t) * (classes ? 1 : t->len), sizeof *e.slices);
    e.scratch = arena_alloc(a, (int64_t)t->scratch_bytes, 1);
    return e;
}

foci_status task_memory_make(foci_ctx *ctx, const struct task *t, int64_t n,
                             struct task_memory *memory)
{
    struct arena count = { 0 };

    task_carve(t, &count);
    *memory = (struct task_memory){ .t = t, .n = n, .each = count.used };
    if (arena_ok(&count)) memory->block = ctx_alloc(ctx, (size_t)n, memory->each);
    if (memory->block) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for %lld examples of %s at a time",
                    (long long)n, t->def->name);
}

void task_memory_free(foci_ctx *ctx, struct task_memory *memory)
{
    if (memory->block) ctx_free(ctx, memory->block, (size_t)memory->n, memory->each);
    memory->block = NULL;
}

struct task_example task_memory_at(const struct task_memory *memory, int64_t i)
{
    const struct task *t = memory->t;
    struct arena       a = { .base = memory->block + (size_t)i * memory->each };

    memset(a.base, 0, memory->each);
    struct task_example e = task_carve(t, &a);
    if (t->kind == FOCI_DATA_CLASSIFY)
        e.labels = NULL;
    else
        memset(e.labels, 0xff, (size_t)t->len * sizeof *e.labels);
    return e;
}

/* Examples that are made at the same time. */
struct making {
    const struct task_memory *memory;
    uint64_t                  seed;
    foci_data_split           split;
    int64_t                   first;
    struct task_example      *examples;
};

static void make_one(void *arg, int64_t i, int thread)
{
    const struct making *m = arg;
    struct rng           r = task_stream(m->seed, m->split, m->first + i);

    (void)thread;
    m->examples[i] = task_memory_at(m->memory, i);
    m->examples[i].seed = m->seed;
    m->examples[i].number = m->first + i;
    m->memory->t->def->make(m->memory->t, &r, m->split, &m->examples[i]);
}

void task_make(foci_ctx *ctx, const struct task_memory *memory, uint64_t seed,
               foci_data_split split, int64_t first, int64_t n,
               struct task_example *examples)
{
    struct making      m = { memory, seed, split, first, examples };
    const struct phase phase = { .n = n, .chunk = 4, .job = make_one, .arg = &m };
    const double       each = 20 * (double)(memory->t->len + memory->t->source_len);

    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, div_up(n, 4), each * (double)n), &phase, 1);
}
