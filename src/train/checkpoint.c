/* checkpoint.c -- state.safetensors: the state from which training continues bit for bit.
 *
 * It holds the latest parameters, their moments, the position in the data and what is
 * carried from batch to batch.  model.safetensors holds the best parameters and is written
 * before: a run that is killed between the two goes on from the state before and comes to
 * the same best parameters once more. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/pass.h"
#include "train/trainer.h"

static bool learns(const struct model_tensor *t)
{
    return t->offset >= 0 && t->keep == FOCI_KEEP_TRAINED;
}

/* Where attention number `index` keeps its memory, and its bytes. */
static size_t carried(const foci_trainer *t, int64_t index, void **rows)
{
    const foci_model *m = t->model;

    if (!t->carry || !t->carry->rows[index]) return 0;
    *rows = t->carry->rows[index];
    for (int i = 0; i < m->n_stacks; i++)
        for (int64_t b = 0; b < m->stacks[i].n; b++) {
            const struct attention *a = &m->stacks[i].blocks[b].self;
            if (a->index == index) return carry_bytes(a, t->carry->batch);
        }
    return 0;
}

uint64_t checkpoint_sum(const foci_trainer *t)
{
    const foci_model *m = t->model;
    const size_t      bytes = (size_t)m->floats * sizeof(float);
    const int64_t     numbers[] = { t->at.step, t->at.tokens };
    uint64_t          sum = checksum_bytes(0, m->params, bytes);

    sum = checksum_bytes(sum, t->m, bytes);
    sum = checksum_bytes(sum, t->v, bytes);
    sum = checksum_bytes(sum, numbers, sizeof numbers);
    for (int64_t i = 0; i < m->n_attentions; i++) {
        void        *rows = NULL;
        const size_t n = carried(t, i, &rows);
        if (n) sum = checksum_bytes(sum, rows, n);
    }
    return sum ? sum : 1;
}

/* What the state belongs to: another model or tokenizer has another number. */
static foci_status identity(foci_trainer *t, char text[17])
{
    foci_model_config c = t->model->config;
    char             *config;

    TRY(foci_config_print(t->model->ctx, &c, &config));
    const uint64_t sum = checksum_bytes(0, config, strlen(config));
    free(config);
    snprintf(text, 17, "%016" PRIx64, sum);
    return FOCI_OK;
}

static void add_standing(struct bundle *b, const struct standing *at)
{
    bundle_text(b, "foci.step", "%" PRId64, at->step);
    bundle_text(b, "foci.tokens", "%" PRId64, at->tokens);
    bundle_text(b, "foci.best", "%a", at->best);
    bundle_text(b, "foci.best_step", "%" PRId64, at->best_step);
    bundle_text(b, "foci.waited", "%" PRId64, at->waited);
    bundle_text(b, "foci.averaged", "%" PRId64, at->averaged);
}

static void add_arrays(struct bundle *b, foci_trainer *t)
{
    foci_model   *m = t->model;
    const int64_t ring = min64(t->at.averaged, t->o.average);

    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *tensor = &m->tensors[i];
        if (tensor->offset < 0) continue;
        bundle_tensor(b, tensor, m->params, "param.");
        if (!learns(tensor)) continue;
        bundle_tensor(b, tensor, t->m, "m.");
        bundle_tensor(b, tensor, t->v, "v.");
    }
    for (int64_t k = 0; k < ring; k++)
        bundle_add(b, FOCI_ELTYPE_F32, t->ring + k * m->floats, m->floats,
                   "average.%" PRId64, k);
    for (int64_t i = 0; i < m->n_attentions; i++) {
        void        *rows = NULL;
        const size_t n = carried(t, i, &rows);
        if (n) bundle_add(b, FOCI_ELTYPE_U8, rows, (int64_t)n, "carry.%" PRId64, i);
    }
}

static foci_status save_with(foci_trainer *t, const void *position, size_t bytes)
{
    foci_model   *m = t->model;
    char          path[FOLDER_PATH], who[17];
    struct bundle b;

    TRY(folder_path(m->ctx, t->o.folder, "state.safetensors", path));
    TRY(identity(t, who));
    bundle_begin(&b, m->ctx,
                 3 * m->n_tensors + (int)m->n_attentions + (int)t->o.average + 1);
    bundle_text(&b, "foci.model", "%s", who);
    add_standing(&b, &t->at);
    add_arrays(&b, t);
    bundle_add(&b, FOCI_ELTYPE_U8, position, (int64_t)bytes, "data");
    const foci_status status = bundle_write(&b, path);
    bundle_end(&b);
    return status;
}

/* Without validation the latest parameters are the best there are. */
foci_status checkpoint_save(foci_trainer *t)
{
    foci_ctx    *ctx = t->model->ctx;
    const size_t bytes = foci_data_save(t->train, NULL, 0);
    void        *position = ctx_alloc(ctx, bytes, 1);

    if (!position) return FOCI_ERR_MEMORY;
    foci_data_save(t->train, position, bytes);
    foci_status status = FOCI_OK;
    if (!t->valid)
        status =
            model_write_params(t->model, t->o.folder, t->model->params, t->at.step);
    if (!status) status = save_with(t, position, bytes);
    ctx_free(ctx, position, bytes, 1);
    return status;
}

/*
 * Going on
 */

static foci_status read_standing(foci_trainer *t, const foci_file *f)
{
    struct standing at;
    char            who[17];
    const char     *whose = bundle_read_text(f, "foci.model");

    TRY(identity(t, who));
    if (!whose || strcmp(whose, who) != 0)
        return file_fail(t->model->ctx, f->path,
                         "is the state of another model than the one to be trained");
    if (!bundle_read_int(f, "foci.step", &at.step) ||
        !bundle_read_int(f, "foci.tokens", &at.tokens) ||
        !bundle_read_real(f, "foci.best", &at.best) ||
        !bundle_read_int(f, "foci.best_step", &at.best_step) ||
        !bundle_read_int(f, "foci.waited", &at.waited) ||
        !bundle_read_int(f, "foci.averaged", &at.averaged) || at.step < 0 ||
        at.averaged < 0)
        return file_fail(t->model->ctx, f->path, "does not say where training stood");
    t->at = at;
    return FOCI_OK;
}

static foci_status read_tensors(foci_trainer *t, const foci_file *f)
{
    foci_model *m = t->model;

    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *tensor = &m->tensors[i];
        if (tensor->offset < 0) continue;
        TRY(bundle_read_tensor(m->ctx, f, tensor, "param.", m->params));
        if (!learns(tensor)) continue;
        TRY(bundle_read_tensor(m->ctx, f, tensor, "m.", t->m));
        TRY(bundle_read_tensor(m->ctx, f, tensor, "v.", t->v));
    }
    return FOCI_OK;
}

static foci_status read_rest(foci_trainer *t, const foci_file *f)
{
    foci_model   *m = t->model;
    const int64_t ring = min64(t->at.averaged, t->o.average);
    char          name[64];

    for (int64_t k = 0; k < ring; k++) {
        snprintf(name, sizeof name, "average.%" PRId64, k);
        const foci_array *a = bundle_find(m->ctx, f, FOCI_ELTYPE_F32, m->floats, name);
        if (!a) return FOCI_ERR_FILE;
        foci_array_to_f32(a, t->ring + k * m->floats);
    }
    for (int64_t i = 0; i < m->n_attentions; i++) {
        void        *rows = NULL;
        const size_t n = carried(t, i, &rows);
        if (!n) continue;
        snprintf(name, sizeof name, "carry.%" PRId64, i);
        const foci_array *a = bundle_find(m->ctx, f, FOCI_ELTYPE_U8, (int64_t)n, name);
        if (!a) return FOCI_ERR_FILE;
        memcpy(rows, a->data, n);
    }
    const foci_array *data = bundle_find(m->ctx, f, FOCI_ELTYPE_U8, -1, "data");
    if (!data) return FOCI_ERR_FILE;
    return foci_data_restore(t->train, data->data, (size_t)data->count);
}

foci_status checkpoint_load(foci_trainer *t)
{
    foci_model *m = t->model;
    char        path[FOLDER_PATH];
    foci_file  *f;

    if (!t->o.folder)
        return ctx_fail(m->ctx, FOCI_ERR_ARG, "training without a folder cannot go on");
    TRY(folder_path(m->ctx, t->o.folder, "state.safetensors", path));
    TRY(bundle_open(m->ctx, path, &f));
    foci_status status = read_standing(t, f);
    if (!status) status = read_tensors(t, f);
    if (!status) status = read_rest(t, f);
    foci_file_free(f);
    if (!status && t->best && isfinite(t->at.best))
        status = model_read_params(m, t->o.folder, t->best, NULL);
    return status;
}
