/* tasks.c -- generated examples against those that tasks.py made from the definitions
 * (README.md). */
#include <stdio.h>

#include "data/task/task.h"
#include "foci/data.h"
#include "test.h"

enum { MOST = 1 << 14 };

/* A case of the file that is being read. */
struct reading {
    foci_ctx           *ctx;
    char                line[MOST], task[256];
    struct task         t;
    struct task_memory  room;
    struct task_example e;
    foci_data          *data; /* for texts */
    int                 at;   /* of the line */
    int                 cases, lines;
};

static void wrong(const struct reading *r, const char *what, long got, long wanted)
{
    fail_msg("tasks.txt, line %d, %s: %s %ld, not %ld", r->at, r->task, what, got,
             wanted);
}

static void open_task(struct reading *r, const char *text)
{
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = text, .batch = 1, .examples = 1 };

    snprintf(r->task, sizeof r->task, "%s", text);
    if (task_parse(r->ctx, text, &r->t) || foci_data_open(r->ctx, &o, &r->data))
        fail_msg("%s: %s", text, foci_errmsg(r->ctx));
    assert_int_equal(task_memory_make(r->ctx, &r->t, 1, &r->room), FOCI_OK);
}

static void make_example(struct reading *r, const char *text)
{
    unsigned long long seed, split, index;

    assert_int_equal(sscanf(text, "%llu %llu %llu", &seed, &split, &index), 3);
    task_make(r->ctx, &r->room, seed, (foci_data_split)split, (int64_t)index, 1, &r->e);
}

static void end_task(struct reading *r)
{
    task_memory_free(r->ctx, &r->room);
    task_free(r->ctx, &r->t);
    foci_data_free(r->data);
    r->data = NULL;
    r->cases++;
}

/* The numbers of a line, which are n. */
static void compare(struct reading *r, const char *what, char *text, const int32_t *got,
                    int64_t n)
{
    int64_t i = 0;

    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "), i++) {
        const long wanted = strtol(word, NULL, 10);
        if (i < n && got[i] != wanted) wrong(r, what, got[i], wanted);
    }
    if (i != n) wrong(r, what, (long)n, (long)i);
}

/* Of the target, without the pad; of the source side 1. */
static void compare_text(struct reading *r, int side, const char *wanted)
{
    char           text[4096];
    const int32_t *ids = side ? r->e.source : r->e.ids;
    const int64_t  n = side ? r->e.n_source : r->e.n;

    (void)foci_data_text(r->data, side, ids, n, text, sizeof text);
    if (strcmp(text, wanted) != 0)
        fail_msg("tasks.txt, line %d, %s: '%s', not '%s'", r->at, r->task, text, wanted);
}

/* What stands at the labels, slice after slice. */
static void compare_slices(struct reading *r, char *text)
{
    const int n_slices = task_n_slices(&r->t);
    int32_t   found[MOST];
    int64_t   n = 0;

    for (int s = 0; s < n_slices; s++) {
        if (!r->e.labels) found[n++] = r->e.slices[s];
        for (int64_t i = 0; r->e.labels && i < r->e.n; i++)
            if (r->e.labels[i] >= 0) found[n++] = r->e.slices[s * r->t.len + i];
    }
    compare(r, "slices", text, found, n);
}

static void read_line(struct reading *r)
{
    char *values = strchr(r->line, ' ');

    r->line[strcspn(r->line, "\n")] = 0;
    if (*r->line == '#' || !*r->line) return;
    if (values) *values++ = 0;
    if (!strcmp(r->line, "task")) open_task(r, values);
    if (!strcmp(r->line, "example")) make_example(r, values);
    if (!strcmp(r->line, "end")) end_task(r);
    if (!strcmp(r->line, "ids")) compare(r, "ids", values, r->e.ids, r->e.n);
    if (!strcmp(r->line, "labels")) compare(r, "labels", values, r->e.labels, r->e.n);
    if (!strcmp(r->line, "source"))
        compare(r, "source", values, r->e.source, r->e.n_source);
    if (!strcmp(r->line, "answer")) compare(r, "answer", values, &r->e.answer, 1);
    if (!strcmp(r->line, "slices")) compare_slices(r, values);
    if (!strcmp(r->line, "text")) compare_text(r, 0, values);
    if (!strcmp(r->line, "source_text")) compare_text(r, 1, values);
    r->lines++;
}

static void examples(void **state)
{
    struct reading *r = test_alloc(1, sizeof *r);
    FILE           *file = fopen("tests/golden/tasks.txt", "r");

    (void)state;
    r->ctx = test_ctx(NULL, 1);
    assert_non_null(file);
    while (fgets(r->line, sizeof r->line, file)) {
        r->at++;
        read_line(r);
    }
    fclose(file);
    assert_true(r->cases > 100);
    assert_true(r->lines > 6 * r->cases);
    foci_ctx_free(r->ctx);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(examples) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
