/* device_tables.c -- what planning uploads: tiles of the support by query and by key, the
 * dictionary of masks both ways, numbers by the keys a row sees, slopes, entries of
 * tables.  One block of memory, filled on the host and copied once. */
#include <math.h>
#include <string.h>

#include "device/device_exact.h"

_Static_assert(sizeof(struct cuda_run) == sizeof(struct tile_run),
               "uploaded as they are");
_Static_assert((int)CUDA_TILE == (int)FOCI_TILE, "tiles are the same");
_Static_assert((int)CUDA_BF16 == (int)FOCI_BF16 && (int)CUDA_F16 == (int)FOCI_F16,
               "types are numbered alike");
_Static_assert((int)CUDA_L2NORM == (int)FOCI_WEIGH_L2NORM &&
                   (int)CUDA_RELU2 == (int)FOCI_WEIGH_RELU2,
               "weights are numbered alike");

/* The pieces on the host; offsets into the block hold on the device too. */
struct tables {
    int64_t         *row0, *col0;
    struct cuda_run *rows, *cols;
    uint64_t (*by_query)[CUDA_TILE];
    uint64_t (*by_key)[CUDA_TILE];
    float   *row_scale, *share, *slope;
    int32_t *entry[2];
};

static void carve_tables(const struct stage *s, const foci_problem *p, struct arena *a,
                         struct tables *t)
{
    const struct support *u = &s->support;
    const struct score   *score = &s->score;

    *t = (struct tables){ 0 };
    if (!u->all) {
        t->row0 = arena_alloc(a, u->n_tiles + 1, sizeof *t->row0);
        t->col0 = arena_alloc(a, u->n_key_tiles + 1, sizeof *t->col0);
        t->rows = arena_alloc(a, u->n_rows, sizeof *t->rows);
        t->cols = arena_alloc(a, u->n_cols, sizeof *t->cols);
        t->by_query = arena_alloc(a, u->n_masks, sizeof *t->by_query);
        t->by_key = arena_alloc(a, u->n_masks, sizeof *t->by_key);
    }
    if (score->n_rows) t->row_scale = arena_alloc(a, p->len_k + 1, sizeof(float));
    if (s->group->mech.def->weigh == FOCI_WEIGH_RELU2)
        t->share = arena_alloc(a, p->len_k + 1, sizeof(float));
    if (score->slope) t->slope = arena_alloc(a, s->group->heads, sizeof(float));
    for (int i = 0; i < score->n_tables; i++)
        t->entry[i] = arena_alloc(a, s->device->n_rel, sizeof(int32_t));
}

/* by_query is the transpose of by_key. */
static void transpose_mask(const uint64_t by_key[CUDA_TILE],
                           uint64_t       by_query[CUDA_TILE])
{
    for (int i = 0; i < CUDA_TILE; i++) {
        by_query[i] = 0;
        for (int j = 0; j < CUDA_TILE; j++)
            by_query[i] |= (by_key[j] >> i & 1) << j;
    }
}

static void copy_some(void *to, const void *from, int64_t n, size_t size)
{
    if (n) memcpy(to, from, (size_t)n * size);
}

static void fill_support(const struct support *u, struct tables *t)
{
    if (u->all) return;
    /* A mechanism that sees nothing at all, or a length of 0, has no rows. */
    copy_some(t->row0, u->row0, u->row0 ? u->n_tiles + 1 : 0, sizeof *t->row0);
    copy_some(t->col0, u->col0, u->col0 ? u->n_key_tiles + 1 : 0, sizeof *t->col0);
    copy_some(t->rows, u->rows, u->n_rows, sizeof *t->rows);
    copy_some(t->cols, u->cols, u->n_cols, sizeof *t->cols);
    copy_some(t->by_key, u->masks, u->n_masks, sizeof *t->by_key);
    for (int32_t i = 0; i < u->n_masks; i++)
        transpose_mask(u->masks[i], t->by_query[i]);
}

static void fill_counts(const struct stage *s, const foci_problem *p, struct tables *t)
{
    const foci_mech *m = &s->group->mech;
    const double     fixed = m->def->divisor ? m->def->divisor(m) : 0;

    for (int64_t n = 0; t->row_scale && n <= p->len_k; n++) {
        double by = 1;
        for (int i = 0; n && i < s->score.n_rows; i++)
            by *= s->score.row[i]->def->row_factor(s->score.row[i], n);
        t->row_scale[n] = (float)by;
    }
    for (int64_t n = 0; t->share && n <= p->len_k; n++)
        t->share[n] = n ? (float)(1 / (fixed > 0 ? fixed : (double)n)) : 0;
}

static void fill_distances(const struct stage *s, const foci_problem *p,
                           struct tables *t)
{
    const struct score        *score = &s->score;
    const struct device_stage *d = s->device;
    const int64_t              heads = s->group->heads;

    for (int64_t h = 0; t->slope && h < heads; h++)
        t->slope[h] =
            (float)(score->slope->def->slope(score->slope, h, heads) * d->bias_unit);
    for (int i = 0; i < score->n_tables; i++)
        for (int64_t at = 0; at < d->n_rel; at++)
            t->entry[i][at] = (int32_t)score->table[i]->def->entry(
                score->table[i], p->flags & FOCI_FLAG_CAUSAL, d->rel0 - at);
}

/* Where the device has what the host has at `at`. */
static void *moved(const struct device_stage *d, const char *base, const void *at)
{
    return at ? (char *)d->memory + ((const char *)at - base) : NULL;
}

static void point(const struct stage *s, const char *base, const struct tables *t)
{
    struct device_stage *d = s->device;
    struct cuda_exact   *x = &d->x;

    x->tiles = (struct cuda_tiles){
        .row0 = moved(d, base, t->row0),
        .col0 = moved(d, base, t->col0),
        .rows = moved(d, base, t->rows),
        .cols = moved(d, base, t->cols),
        .by_query = (const uint64_t(*)[CUDA_TILE])moved(d, base, t->by_query),
        .by_key = (const uint64_t(*)[CUDA_TILE])moved(d, base, t->by_key),
        .n_rows = (int32_t)s->support.n_tiles,
        .n_cols = (int32_t)s->support.n_key_tiles,
    };
    x->score.row_scale = moved(d, base, t->row_scale);
    x->score.share = moved(d, base, t->share);
    x->score.slope = moved(d, base, t->slope);
    for (int i = 0; i < 2; i++)
        d->entry[i] = moved(d, base, t->entry[i]);
}

static foci_status upload(foci_plan *plan, struct stage *s)
{
    foci_ctx     *ctx = plan->ctx;
    struct arena  a = { 0 };
    struct tables t;

    carve_tables(s, &plan->p, &a, &t);
    if (!a.used) return FOCI_OK;
    const size_t bytes = a.used;
    char        *host = ctx_alloc(ctx, bytes, 1);
    if (!host) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = host };
    carve_tables(s, &plan->p, &a, &t);
    fill_support(&s->support, &t);
    fill_counts(s, &plan->p, &t);
    fill_distances(s, &plan->p, &t);
    foci_status status = foci_device_alloc(ctx, bytes, &s->device->memory);
    if (!status) status = foci_device_write(ctx, s->device->memory, host, bytes);
    if (!status) point(s, host, &t);
    ctx_free(ctx, host, bytes, 1);
    return status;
}

/* All that does not change from execution to execution. */
static void describe_launch(const foci_plan *plan, const struct stage *s)
{
    const foci_problem  *p = &plan->p;
    const struct score  *score = &s->score;
    struct device_stage *d = s->device;
    struct cuda_exact   *x = &d->x;
    const double         unit = device_unit(s);

    d->bias_unit = score->cap > 0 ? 1 : unit;
    d->scale = score->scale * d->bias_unit;
    d->rel0 = p->len_q + FOCI_TILE;
    d->n_rel = d->rel0 + p->len_k + FOCI_TILE;
    d->map = (struct cuda_map){ .standard = score->map == FOCI_MAP_STANDARD,
                                .unit = score->unit,
                                .rope_base = score->rope_base,
                                .rope_half = score->rope_half };
    *x = (struct cuda_exact){
        .sm = plan->ctx->device->info.sm,
        .n_sm = plan->ctx->device->info.n_sm,
        .dtype = (int)p->dtype,
        .weigh = (int)s->group->mech.def->weigh,
        .causal = (p->flags & FOCI_FLAG_CAUSAL) != 0,
        .batch = p->batch,
        .len_q = p->len_q,
        .len_k = p->len_k,
        .heads = (int)s->group->heads,
        .kv_heads = (int)s->group->kv_heads,
        .head0 = (int)s->group->head0,
        .d = (int)p->dim_qk,
        .dv = (int)p->dim_v,
        .n_seqs = (int)p->batch,
        .score = { .scale = (float)d->scale,
                   .unit = (float)unit,
                   .cap = (float)score->cap },
        .kept = (float)(1 / (1 - p->dropout)),
        .memory = s->memory,
    };
    if (p->dropout > 0) x->drop_bound = (uint64_t)ceil(p->dropout * 0x1p53) << 11;
}

static struct cuda_in in_as(const foci_layout *l)
{
    return (struct cuda_in){ NULL, l->batch, l->row, l->head };
}

static struct cuda_out out_as(const foci_layout *l)
{
    return (struct cuda_out){ NULL, l->batch, l->row, l->head };
}

/* What executions will give, so that kernels that cannot do with it are not named and get no
 * memory: any address stands for it until then. */
static void describe_given(const foci_plan *plan, const struct stage *s)
{
    static float       given;
    struct cuda_exact *x = &s->device->x;

    if (plan->p.flags & FOCI_FLAG_MASK) x->mask.at = &given;
    if (plan->p.flags & FOCI_FLAG_BIAS) x->bias.at = &given;
    if (s->score.n_tables) x->score.rel = &given;
    if (s->score.n_factors) {
        x->score.head_scale = &given;
        if (plan->p.flags & FOCI_FLAG_TRAIN) x->row_ds = &given;
    }
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* The work memory that kernels ask for, with lengths or documents if they are given. */
static size_t count_work(const foci_plan *plan, const struct cuda_exact *launch,
                         int what)
{
    static const struct cuda_seq given;
    const struct cuda_calls     *calls = plan->ctx->device->calls;
    struct cuda_exact            x = *launch;
    size_t                       bytes = calls->exact_work_bytes(&x, what);

    x.seqs = &given;
    bytes = max_size(bytes, calls->exact_work_bytes(&x, what));
    x.packed = plan->p.max_docs > 0;
    x.n_seqs = (int)plan_max_seqs(plan);
    return max_size(bytes, calls->exact_work_bytes(&x, what));
}

/* Tensors as executions give them to kernels, but for where they lie, and the work memory
 * for them. */
static void describe_tensors(const foci_plan *plan, const struct stage *s)
{
    const foci_problem  *p = &plan->p;
    struct device_stage *d = s->device;
    struct cuda_exact   *x = &d->x;
    const foci_layout    q = device_rows(s, p, false), k = device_rows(s, p, true);

    x->q = in_as(&q);
    x->k = in_as(&k);
    x->v = in_as(&p->v);
    x->o = out_as(&p->o);
    x->d_o = in_as(&p->o);
    x->dq = out_as(&q);
    x->dk = out_as(&k);
    x->dv_out = out_as(&p->v);
    describe_given(plan, s);
    d->kernel_bytes[0] = count_work(plan, x, CUDA_FORWARD);
    if (p->flags & FOCI_FLAG_TRAIN)
        d->kernel_bytes[1] = count_work(plan, x, CUDA_BACKWARD);
}

foci_status device_stage_make(foci_plan *plan, struct stage *s)
{
    TRY(device_refuse(plan, s));
    s->device = ctx_alloc(plan->ctx, 1, sizeof *s->device);
    if (!s->device) return FOCI_ERR_MEMORY;
    describe_launch(plan, s);
    const struct device *d = plan->ctx->device;
    if (!d->calls->exact_name(&s->device->x, CUDA_FORWARD))
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "%s: %s has capability %d.%d, and kernels need 8.0", d->name,
                        d->info.name, d->info.sm / 10, d->info.sm % 10);
    TRY(upload(plan, s));
    describe_tensors(plan, s);
    return FOCI_OK;
}

void device_stage_free(foci_ctx *ctx, struct stage *s)
{
    if (!s->device) return;
    foci_device_free(ctx, s->device->memory, 0);
    ctx_free(ctx, s->device, 1, sizeof *s->device);
    s->device = NULL;
}
