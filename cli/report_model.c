/* report_model.c -- the section of one trained model: its command, its learning curve if the
 * folder has its log (foci train --log DIR/log.jsonl), what it costs; and its heads. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report.h"

static json_t *load(const char *folder, const char *name)
{
    char   *path = compare_text("%s/%s", folder, name);
    json_t *o = json_load_file(path, 0, NULL);

    free(path);
    return o;
}

/* The steps of a log: [[step, loss, valid loss or null]]. */
static json_t *read_log(const char *folder)
{
    char   *path = compare_text("%s/log.jsonl", folder), *text = NULL;
    FILE   *in = fopen(path, "r");
    json_t *list = json_array();
    size_t  cap = 0;

    free(path);
    while (in && getline(&text, &cap, in) > 0) {
        json_t       *o = json_loads(text, 0, NULL);
        const json_t *valid = json_object_get(o, "valid_loss");
        if (json_is_number(json_object_get(o, "step")) &&
            json_is_number(json_object_get(o, "loss")))
            json_array_append_new(
                list, json_pack("[O, O, o]", json_object_get(o, "step"),
                                json_object_get(o, "loss"),
                                valid ? json_incref((json_t *)valid) : json_null()));
        json_decref(o);
    }
    free(text);
    if (in) fclose(in);
    return list;
}

/* Its heads and costs, by a child: a folder that cannot be judged has no more than the rest. */
static json_t *look(struct report *r, const char *folder)
{
    char                *path = temporary_name();
    const int            fd = mkstemp(path);
    struct compare_child k = { 0 };
    json_t              *costs = NULL;

    if (fd < 0) {
        note(r->a, "%s: heads cannot be looked at: %s: %s", folder, path,
             strerror(errno));
        free(path);
        return NULL;
    }
    close(fd);
    json_t *words = words_create("eval", folder, "--split", "valid", "--costs",
                                 "--heads", path, "--json", "--quiet", NULL);
    if (children_run(r->a, words, &k)) {
        costs = children_result(&k);
        if (costs)
            report_take_heads(r, path, folder, -1);
        else
            note(r->a, "%s: heads cannot be looked at: %s", folder, k.err ? k.err : "");
    }
    free(k.out);
    free(k.err);
    json_decref(words);
    (void)unlink(path);
    free(path);
    return costs;
}

int report_read_model(struct report *r, const char *folder)
{
    json_t *config = load(folder, "config.json");
    json_t *notes = load(folder, "train.json");

    if (!config) {
        json_decref(notes);
        return failure(r->a, "%s/config.json cannot be read: the folder is no model",
                       folder);
    }
    json_t *o = json_pack("{s:o, s:o, s:o}", "folder", compare_string(folder), "config",
                          config, "log", read_log(folder));
    if (notes) json_object_set_new(o, "notes", notes);
    json_t *costs = look(r, folder);
    if (costs) json_object_set_new(o, "costs", costs);
    json_array_append_new(r->models, o);
    return EXIT_OK;
}

/*
 * The section
 */

/* Losses of steps are means of a fiftieth of them: single ones jump. */
static void put_curve(struct report *r, const json_t *log)
{
    struct chart *c =
        chart_create("training", "Learning curve", "training steps", "loss, nats");
    const size_t n = json_array_size(log), size = n / 50 + 1;
    double       sum = 0;

    struct chart_series *s = chart_add(c, "training", 5);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(log, i);
        sum += json_number_value(json_array_get(row, 1));
        if ((i + 1) % size && i + 1 < n) continue;
        chart_put(s, json_number_value(json_array_get(row, 0)),
                  sum / (double)(i % size + 1), NAN, NAN);
        sum = 0;
    }
    s->joined = true;
    s = chart_add(c, "validation", 0);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(log, i), *valid = json_array_get(row, 2);
        if (json_is_number(valid))
            chart_put(s, json_number_value(json_array_get(row, 0)),
                      json_number_value(valid), NAN, NAN);
    }
    s->joined = s->marked = true;
    report_figure(r, c);
}

static void put_numbers(struct report *r, const json_t *all)
{
    static const char *const names[] = {
        "loss",
        "perplexity",
        "accuracy",
        "bleu",
        "parameters",
        "trained_parameters",
        "forward_flops_per_token",
        "state_bytes",
        "decoding_tokens_per_second",
        "concentration",
    };
    const json_t *costs = json_object_get(all, "costs");
    json_t       *cells = json_array();
    char          text[32];

    json_array_append_new(cells, json_string("on validation"));
    json_array_append_new(cells, json_string(""));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double x = field_real(all, names[i]);
        if (!isfinite(x)) x = field_real(costs, names[i]);
        if (!isfinite(x)) continue;
        json_array_append_new(cells, json_string(names[i]));
        json_array_append_new(cells, json_string(chart_number(x, text)));
    }
    report_table(r, "lr", cells, "Numbers of the model");
    json_decref(cells);
}

void report_put_model(struct report *r, const json_t *model)
{
    const json_t *list = json_object_get(json_object_get(model, "notes"), "arguments");
    json_t       *words = words_create("train", NULL);

    markup_put(&r->page, "<section>\n<h2>A model: <bdi>");
    markup_text(&r->page, json_string_value(json_object_get(model, "folder")));
    markup_put(&r->page, "</bdi></h2>\n");
    json_array_extend(words, (json_t *)list);
    char *command = children_command(words);
    if (list) {
        markup_put(&r->page, "<p><code>");
        markup_text(&r->page, command);
        markup_put(&r->page, "</code></p>\n");
    }
    markup_put(&r->page, "<div class=figures>\n");
    put_curve(r, json_object_get(model, "log"));
    markup_put(&r->page, "</div>\n");
    if (!json_array_size(json_object_get(model, "log")))
        report_line(r, "The folder has no log.jsonl, as foci train --log DIR/log.jsonl "
                       "writes it: there is no learning curve.");
    if (json_object_get(model, "costs"))
        put_numbers(r, json_object_get(model, "costs"));
    markup_put(&r->page, "</section>\n");
    free(command);
    json_decref(words);
}
