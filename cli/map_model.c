/* map_model.c -- weights of the heads of a trained model on a text. */
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"
#include "cli/reading.h"
#include "cli/train.h"

struct looking {
    struct map *m;
    const char *wanted;  /* --layer; NULL: all */
    bool        numbers; /* that is a list of numbers, not part of a name */
    int64_t     n;       /* attentions that were seen */
    char        names[512];
    bool        any; /* of them were wanted */
};

static char *copy(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    return memcpy(need(bytes, 1), text, bytes);
}

static bool is_wanted(const struct looking *l, const foci_attention_weights *w)
{
    if (!l->wanted) return true;
    return l->numbers ? map_takes(l->wanted, w->index)
                      : strstr(w->name, l->wanted) != NULL;
}

static int take(void *user, const foci_attention_weights *w)
{
    struct looking *l = user;
    const size_t    used = strlen(l->names);

    snprintf(l->names + used, sizeof l->names - used, "%s%lld: %s", l->n ? ", " : "",
             (long long)w->index, w->name);
    l->n++;
    if (!is_wanted(l, w)) return 0;
    l->any = true;
    if (!w->weights) {
        note(l->m->a, "%s has no weights: %s", w->name, w->why);
        return 0;
    }
    struct map_attention *a = map_add(l->m, w->heads, w->queries, w->keys);
    memcpy(a->weights, w->weights,
           (size_t)(w->heads * w->queries * w->keys) * sizeof *a->weights);
    a->name = copy(w->name);
    a->index = w->index;
    a->memory = w->memory;
    a->labels = map_label_heads(foci_layer_plan(w->layer), w->heads, NULL);
    a->query_source = w->query_side;
    a->key_source = w->key_side;
    return 0;
}

static int look(struct map *m, foci_model *model, const foci_batch *batch)
{
    struct looking l = { .m = m, .wanted = opt_text(m->a, "layer") };

    l.numbers = l.wanted && *l.wanted >= '0' && *l.wanted <= '9';
    int code = l.numbers ? map_check_list(m->a, "layer", 0) : EXIT_OK;
    if (code) return code;
    const foci_status status =
        foci_model_attentions(model, batch, opt_int(m->a, "tokens", 256), take, &l);
    if (status) return library_error(m->a, m->ctx, status, m->a->words[0]);
    if (l.numbers) code = map_check_list(m->a, "layer", l.n);
    if (!code && !l.any)
        code = usage_error(m->a, "--layer is '%s'; %s has %s", l.wanted, m->a->words[0],
                           l.names);
    if (!code && !m->n_attentions)
        code = failure(m->a, "%s: there are no weights to draw", m->a->words[0]);
    return code;
}

static void describe_text(struct map *m)
{
    enum { CAP = 200 };
    const foci_reading_side *text = &m->reading->sides[0],
                            *source = &m->reading->sides[1];
    int used = 0;

    m->about = need(CAP, 1);
    if (source->n)
        used = snprintf(m->about, CAP, "%lld tokens of the source, ",
                        (long long)source->n);
    if (text->whole > text->n)
        snprintf(m->about + used, CAP - (size_t)used, "the first %lld of %lld tokens",
                 (long long)text->n, (long long)text->whole);
    else
        snprintf(m->about + used, CAP - (size_t)used, "%lld token%s",
                 (long long)text->n, text->n == 1 ? "" : "s");
    for (int side = 0; side < 2; side++)
        m->tokens[side] = (struct map_tokens){ m->reading->sides[side].tokens,
                                               m->reading->sides[side].n };
}

/* What the model reads: of an example of its generator, or of a text. */
static int find_batch(struct map *m, foci_model *model, const foci_tokenizer *tokenizer,
                      foci_batch *batch)
{
    const bool text = opt_text(m->a, "text") || opt_text(m->a, "prompt");

    if (!tokenizer && !text) return map_task(m, batch);
    if (!tokenizer)
        return failure(m->a,
                       "%s has no tokenizer, so it reads no text: it was trained on "
                       "a generator; give --example N",
                       m->a->words[0]);
    if (opt_flag(m->a, "task") || opt_flag(m->a, "example"))
        return usage_error(m->a, "%s reads text: give --text FILE or --prompt TEXT",
                           m->a->words[0]);
    const int code = reading_open(m->a, m->ctx, model, tokenizer, &m->reading);
    if (code) return code;
    *batch = *m->reading->batch;
    describe_text(m);
    return EXIT_OK;
}

int map_model(struct map *m)
{
    foci_model     *model = NULL;
    foci_tokenizer *tokenizer = NULL;
    foci_batch      batch = { FOCI_SIZED(foci_batch) };

    int code = model_open(m->a, m->ctx, &model, &tokenizer);
    if (!code) code = find_batch(m, model, tokenizer, &batch);
    m->title = copy(m->a->words[0]);
    if (!code) code = look(m, model, &batch);
    m->facts = json_object();
    json_object_set_new(m->facts, "model", json_string(m->a->words[0]));
    foci_model_free(model);
    foci_tokenizer_free(tokenizer);
    return code;
}
