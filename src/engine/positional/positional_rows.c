/* positional_rows.c -- rows of the caller's tensors, in and out. */
#include <string.h>

#include "engine/positional/positional.h"

static size_t row_at(const struct positional *x, const foci_layout *l,
                     const struct positional_head *at, int64_t row, int64_t head)
{
    return (size_t)(at->s->b * l->batch + row * l->row + head * l->head + at->column) *
           x->el;
}

const char *positional_v_at(const struct positional      *x,
                            const struct positional_head *at, int64_t i)
{
    return (const char *)x->io->v +
           row_at(x, &x->p->v, at, at->s->k0 + i, x->kv0 + at->kv);
}

const char *positional_do_at(const struct positional      *x,
                             const struct positional_head *at, int64_t i)
{
    return (const char *)x->g->d_o +
           row_at(x, &x->p->o, at, at->s->q0 + i, x->head0 + at->h);
}

char *positional_o_at(const struct positional *x, const struct positional_head *at,
                      int64_t i)
{
    return (char *)x->io->o + row_at(x, &x->p->o, at, at->s->q0 + i, x->head0 + at->h);
}

char *positional_dv_at(const struct positional *x, const struct positional_head *at,
                       int64_t i)
{
    return (char *)x->g->dv + row_at(x, &x->p->v, at, at->s->k0 + i, x->kv0 + at->kv);
}

void positional_load_v(const struct positional *x, const struct positional_head *at,
                       int64_t i, int n, float *tile)
{
    x->k->load_rows(tile, at->ld, positional_v_at(x, at, i), x->p->v.row,
                    (int)x->p->dtype, n, at->width);
}

void positional_load_do(const struct positional *x, const struct positional_head *at,
                        int64_t i, int n, float *tile)
{
    x->k->load_rows(tile, at->ld, positional_do_at(x, at, i), x->p->o.row,
                    (int)x->p->dtype, n, at->width);
}

/* Whether kernels of floats can read rows of the tensors in place. */
static bool in_place(const struct positional *x, const struct positional_head *at)
{
    return x->p->dtype == FOCI_F32 && at->width == at->ld;
}

static struct positional_rows load_rows(const struct positional      *x,
                                        const struct positional_head *at,
                                        const char *from, const foci_layout *l, int n,
                                        int ahead, float *tile)
{
    if (in_place(x, at))
        return (struct positional_rows){ (const float *)(const void *)from, l->row };
    x->k->load_rows_prefetch(tile, at->ld, from, l->row, (int)x->p->dtype, n, at->width,
                             ahead);
    return (struct positional_rows){ tile, at->ld };
}

struct positional_rows positional_rows_v(const struct positional      *x,
                                         const struct positional_head *at, int64_t i,
                                         int n, int ahead, float *tile)
{
    return load_rows(x, at, positional_v_at(x, at, i), &x->p->v, n, ahead, tile);
}

struct positional_rows positional_rows_do(const struct positional      *x,
                                          const struct positional_head *at, int64_t i,
                                          int n, int ahead, float *tile)
{
    return load_rows(x, at, positional_do_at(x, at, i), &x->p->o, n, ahead, tile);
}

static void store_rows(const struct positional *x, const struct positional_head *at,
                       char *to, const foci_layout *l, int n,
                       struct positional_rows from)
{
    if (x->non_temporal)
        x->k->stream_rows(to, l->row, (int)x->p->dtype, from.at, from.ld, n, at->width);
    else
        x->k->store_rows(to, l->row, (int)x->p->dtype, from.at, from.ld, 1.0f, n,
                         at->width);
}

static void copy_rows(const struct positional *x, const struct positional_head *at,
                      char *to, const foci_layout *lo, const char *from,
                      const foci_layout *li, int n)
{
    const int64_t el = (int64_t)x->el;
    const size_t  bytes = (size_t)at->width * x->el;

    if (x->non_temporal) {
        x->k->copy_rows(to, lo->row * el, from, li->row * el, n, (int)bytes);
        return;
    }
    for (int i = 0; i < n; i++)
        memcpy(to + i * lo->row * el, from + i * li->row * el, bytes);
}

void positional_store_rows_o(const struct positional      *x,
                             const struct positional_head *at, int64_t i, int n,
                             struct positional_rows from)
{
    store_rows(x, at, positional_o_at(x, at, i), &x->p->o, n, from);
}

void positional_copy_o(const struct positional *x, const struct positional_head *at,
                       int64_t from, int64_t to, int n)
{
    copy_rows(x, at, positional_o_at(x, at, to), &x->p->o, positional_v_at(x, at, from),
              &x->p->v, n);
}

void positional_store_o(const struct positional *x, const struct positional_head *at,
                        int64_t i, int n, const float *tile)
{
    positional_store_rows_o(x, at, i, n, (struct positional_rows){ tile, at->ld });
}

float *positional_shared_dv(const struct positional      *x,
                            const struct positional_head *at, int64_t i)
{
    const int64_t rows = x->p->batch * x->p->len_k;
    return x->dv_rows +
           (at->kv * rows + at->s->b * x->p->len_k + at->s->k0 + i) * x->ldv;
}

static void add_shared(const struct positional *x, const struct positional_head *at,
                       int64_t i, int n, struct positional_rows from)
{
    for (int64_t t = 0; t < n; t++) {
        float *to = positional_shared_dv(x, at, i + t) + at->column;
        for (int c = 0; c < at->width; c++)
            to[c] = from.at[t * from.ld + c] + (at->first ? 0 : to[c]);
    }
}

bool positional_copy_dv(const struct positional *x, const struct positional_head *at,
                        int64_t from, int64_t to, int n)
{
    if (!x->g->dv || x->dv_rows) return false;
    copy_rows(x, at, positional_dv_at(x, at, to), &x->p->v,
              positional_do_at(x, at, from), &x->p->o, n);
    return true;
}

void positional_store_rows_dv(const struct positional      *x,
                              const struct positional_head *at, int64_t i, int n,
                              struct positional_rows from)
{
    if (!x->g->dv) return;
    if (x->dv_rows) {
        add_shared(x, at, i, n, from);
        return;
    }
    store_rows(x, at, positional_dv_at(x, at, i), &x->p->v, n, from);
}

void positional_store_dv(const struct positional *x, const struct positional_head *at,
                         int64_t i, int n, const float *tile)
{
    positional_store_rows_dv(x, at, i, n, (struct positional_rows){ tile, at->ld });
}
