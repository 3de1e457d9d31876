/* map_task.c -- an example of a generator, for models that read no text. */
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"
#include "cli/train.h"

/* The test example of that number.  Batches are the data object's. */
static int find_example(struct map *m, const char *task, foci_batch *batch)
{
    const int64_t           number = opt_int(m->a, "example", 0);
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .kind = FOCI_DATA_TASK,
                                  .task = task,
                                  .split = FOCI_DATA_SPLIT_TEST,
                                  .batch = 1,
                                  .order = FOCI_DATA_ORDER_ONCE,
                                  .examples = number + 1,
                                  .words = 1,
                                  .seed = 1 };
    foci_status             status = foci_data_open(m->ctx, &o, &m->data);

    for (bool found = false; !status && !found;) {
        *batch = (foci_batch){ FOCI_SIZED(foci_batch) };
        status = foci_data_next(m->data, batch);
        found = !status && (!batch->batch || batch->examples[0] == number);
    }
    if (status) return library_error(m->a, m->ctx, status, task);
    return batch->ids
               ? EXIT_OK
               : failure(m->a, "%s has no tokens that could stand beside weights", task);
}

/* Symbols of the task; where there is none, its number. */
static void show_tokens(struct map *m, int side, const int32_t *ids, int64_t n)
{
    char **shown = need((size_t)n, sizeof *shown);

    for (int64_t i = 0; i < n; i++) {
        const int    bytes = foci_data_text(m->data, side, &ids[i], 1, NULL, 0);
        const size_t cap = (size_t)(bytes > 0 ? bytes : 16) + 1;
        shown[i] = need(cap, 1);
        if (bytes > 0)
            foci_data_text(m->data, side, &ids[i], 1, shown[i], cap);
        else
            foci_token_display(NULL, ids[i], shown[i], cap);
    }
    m->symbols[side] = shown;
    m->tokens[side] = (struct map_tokens){ (const char *const *)shown, n };
}

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

int map_task(struct map *m, foci_batch *batch)
{
    const char  *folder = m->a->words[0], *task = opt_text(m->a, "task");
    json_t      *notes = task ? NULL : train_notes_read(m->a, folder);
    const size_t bytes = 80;

    if (!task && !notes) return EXIT_FAILED;
    if (!task) task = json_string_value(json_object_get(notes, "task"));
    int code = task ? find_example(m, task, batch)
                    : failure(m->a,
                              "%s has no tokenizer, and its train.json names no "
                              "generator: give --task TEXT",
                              folder);
    json_decref(notes);
    if (code) return code;
    const int64_t most = opt_int(m->a, "tokens", 256);
    show_tokens(m, 0, batch->ids, at_most(batch->lens[0], most));
    if (batch->source_ids)
        show_tokens(m, 1, batch->source_ids, at_most(batch->source_lens[0], most));
    if (batch->lens[0] > most)
        note(m->a, "the example has %d tokens, of which the first %lld are read",
             (int)batch->lens[0], (long long)most);
    m->about = need(bytes, 1);
    snprintf(m->about, bytes, "test example %lld, %lld tokens",
             (long long)batch->examples[0], (long long)m->tokens[0].n);
    return EXIT_OK;
}
