/* analyse_model.c -- foci analyse DIR: the heads of a trained model, and what it loses without
 * each of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/analyse_heads.h"
#include "cli/eval.h"

enum { SEQUENCES = 8, AT_ONCE = 16 };

static const struct option *option_of(const struct verb *verb, const char *name)
{
    const struct option *o;

    for (int i = 0; (o = verb_option(verb, i)); i++)
        if (!strcmp(o->name, name)) return o;
    return NULL;
}

static void add_given(struct eval_line *l, const char *name, const char *text,
                      double number)
{
    l->args.given[l->args.n_given++] =
        (struct given){ option_of(&l->verb, name), text, number };
}

/* A text is the data of `foci eval`, and without one the model is looked at on what it was
 * validated by. */
void eval_line_open(const struct args *a, int64_t batch, struct eval_line *l)
{
    const bool given =
        opt_text(a, "text") || opt_text(a, "source") || opt_text(a, "task");

    l->verb = *verb_named("eval");
    l->args = *a;
    l->args.given = need((size_t)a->n_given + 3, sizeof *l->args.given);
    if (a->n_given)
        memcpy(l->args.given, a->given, (size_t)a->n_given * sizeof *a->given);
    add_given(l, "batch", "", (double)batch);
    if (opt_text(a, "text")) add_given(l, "data", opt_text(a, "text"), 0);
    if (!given && !opt_flag(a, "split"))
        add_given(l, "split", "valid", FOCI_DATA_SPLIT_VALID);
    l->verb.name = a->verb->name;
    l->args.verb = &l->verb;
}

void eval_line_close(struct eval_line *l) { free(l->args.given); }

/*
 * Looking
 */

struct looking {
    struct heads_view *view;
    foci_status        status;
};

/* Heads that have no weights are listed with the reason. */
static int look(void *user, const foci_observation *o)
{
    struct looking     *k = user;
    struct heads_layer *l;
    foci_layer_problem  p = { FOCI_SIZED(foci_layer_problem) };

    (void)foci_layer_get_problem(o->layer, &p);
    k->status = heads_layer(k->view, o->name, o->spec, o->index, p.heads, &l);
    if (k->status || !l->heads) return k->status != FOCI_OK;
    const foci_status status = foci_heads_add_layer(l->heads, o->layer, o->io);
    l->first += p.batch;
    if (status == FOCI_ERR_UNSUP) {
        snprintf(l->why, sizeof l->why, "%s", foci_errmsg(k->view->ctx));
        foci_heads_free(l->heads);
        l->heads = NULL;
    } else {
        k->status = status;
    }
    return k->status != FOCI_OK;
}

static int look_at_batches(const struct judged *j, struct heads_view *v, int64_t batches)
{
    struct looking  k = { .view = v };
    struct progress progress;
    foci_batch      b;
    foci_status     status = foci_data_rewind(j->data, 0);

    progress_begin(&progress, j->a, "batches", batches);
    for (int64_t i = 0; i < batches && !status; i++) {
        b = (foci_batch){ FOCI_SIZED(foci_batch) };
        progress_tick(&progress, i, "heads");
        status = foci_data_next(j->data, &b);
        if (status || !b.batch) break;
        status = foci_model_observe(j->model, &b, 0, 0, look, &k);
        if (!status) status = k.status;
    }
    progress_end(&progress);
    if (status) return library_error(j->a, j->ctx, status, NULL);
    return v->n ? EXIT_OK : failure(j->a, "%s has no attention", j->a->words[0]);
}

/*
 * Without a head
 */

static foci_status loss_of(const struct judged *j, int64_t batches, foci_scores *s)
{
    *s = (foci_scores){ FOCI_SIZED(foci_scores) };
    return foci_evaluate(j->model, j->data, batches, s);
}

/* The head's rows of Wo are zero meanwhile. */
static foci_status loss_without(const struct judged *j, int64_t attention, int64_t head,
                                int64_t batches, double *loss)
{
    int64_t     first, count;
    foci_scores s;
    foci_status status =
        foci_model_head_floats(j->model, attention, head, &first, &count);

    if (status) return status;
    float *const at = foci_model_params(j->model) + first;
    float       *kept = need((size_t)count, sizeof *kept);
    memcpy(kept, at, (size_t)count * sizeof *kept);
    memset(at, 0, (size_t)count * sizeof *at);
    status = loss_of(j, batches, &s);
    memcpy(at, kept, (size_t)count * sizeof *kept);
    free(kept);
    *loss = s.loss;
    return status;
}

static int find_losses(const struct judged *j, struct heads_view *v, int64_t batches)
{
    struct progress progress;
    foci_scores     all;
    int64_t         heads = 0, done = 0;
    foci_status     status = loss_of(j, batches, &all);

    for (size_t i = 0; i < v->n; i++)
        heads += v->layers[i]->n;
    progress_begin(&progress, j->a, "heads", heads);
    for (size_t i = 0; i < v->n && !status; i++) {
        struct heads_layer *l = v->layers[i];
        l->loss = need((size_t)l->n, sizeof *l->loss);
        for (int64_t h = 0; h < l->n && !status; h++) {
            progress_tick(&progress, done++, l->name);
            status = loss_without(j, l->index, h, batches, &l->loss[h]);
        }
    }
    progress_end(&progress);
    if (status) return library_error(j->a, j->ctx, status, NULL);
    v->loss = all.loss;
    v->labels = all.tokens;
    return EXIT_OK;
}

static int look_at_model(const struct args *a, const struct judged *j, int64_t batches)
{
    struct heads_view v;

    heads_open(&v, a, j->ctx, a->words[0]);
    int code = look_at_batches(j, &v, batches);
    if (!code && opt_flag(a, "ablate")) code = find_losses(j, &v, batches);
    if (!code) code = heads_show(&v);
    heads_close(&v);
    return code;
}

int analyse_model(const struct args *a)
{
    const int64_t    n = opt_int(a, "sequences", SEQUENCES);
    const int64_t    batch = n < AT_ONCE ? n : AT_ONCE;
    struct eval_line line;
    struct judged    j;
    int              code = heads_check(a);

    if (!code && access(a->words[0], F_OK) != 0)
        code =
            usage_error(a,
                        "'%s' is no folder of a model; a mechanism is looked at with "
                        "--q and --k",
                        a->words[0]);
    if (code) return code;
    eval_line_open(a, batch, &line);
    code = eval_open(&line.args, &j);
    if (!code) code = look_at_model(a, &j, (n + batch - 1) / batch);
    eval_close(&j);
    eval_line_close(&line);
    return code;
}
