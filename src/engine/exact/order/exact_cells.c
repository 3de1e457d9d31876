/* exact_cells.c -- from sorted rows to cells, and from cells to pieces of work. */
#include <math.h>
#include <string.h>

#include "engine/exact/order/exact_order.h"

enum {
    DIGITS = 256,
    GROUPS =
        4, /* of blocks, and of tiles, that split the backward pass of a large cell */
    MIN_SHARED = 64, /* pairs of tiles from which on a cell is split */
    MIN_BLOCKS = 4   /* blocks of a piece, which share the packing of keys */
};

size_t order_cells_bytes(const struct exact *x)
{
    struct arena one = { 0 };
    sort_scratch(x, &one);
    return one.used;
}

/*
 * Cells
 */

static void add_cell(struct cells *p, int64_t q0, int64_t q1, int64_t k0, int64_t k1)
{
    p->cells[p->n_cells++] =
        (struct order_cell){ (int32_t)q0, (int32_t)q1, (int32_t)k0, (int32_t)k1 };
}

static int64_t run_end(const int32_t *label, const int32_t *list, int64_t i, int64_t n)
{
    const int32_t now = label[list[i]];
    while (i < n && label[list[i]] == now)
        i++;
    return i;
}

/* A cell for each label that both queries and keys have. */
static void match_labels(struct cells *p, const int32_t *of_q, const int32_t *of_k)
{
    for (int64_t q = 0, k = 0; q < p->n_q && k < p->n_k;) {
        const int32_t a = of_q[p->list_q[q]], b = of_k[p->list_k[k]];
        const int64_t q1 = a <= b ? run_end(of_q, p->list_q, q, p->n_q) : q;
        const int64_t k1 = b <= a ? run_end(of_k, p->list_k, k, p->n_k) : k;

        if (a == b) add_cell(p, q, q1, k, k1);
        q = q1;
        k = k1;
    }
}

/* The queries of a chunk see it and the chunk before, unless it is the first of its
 * label. */
static void match_chunks(struct cells *p, const int32_t *label)
{
    int64_t before = 0;

    for (int64_t q = 0, q1; q < p->n_q; before = q, q = q1) {
        q1 = run_end(label, p->list_q, q, p->n_q);
        add_cell(p, q, q1, label[p->list_q[q]] & 1 ? q : before, q1);
    }
}

/* Rows that have a label and have seen nothing see themselves. */
static void match_alone(const struct exact *x, struct cells *p, int64_t set,
                        const struct exact_seq *s)
{
    const struct order *o = x->order;
    const int64_t       row = order_q_row(x, s);

    for (int64_t i = 0; i < s->s.nq; i++) {
        if (o->any_seen[set * o->q_rows + row + i] ||
            o->label_q[set * o->rounds * o->q_rows + row + i] < 0)
            continue;
        p->list_q[p->n_q] = p->list_k[p->n_q] = (int32_t)i;
        add_cell(p, p->n_q, p->n_q + 1, p->n_q, p->n_q + 1);
        p->n_q++;
    }
    p->n_k = p->n_q;
}

/* All labels have the same number of rows. */
static void match_topk(const struct order *o, struct cells *p)
{
    const int64_t q = o->topk_q, k = o->topk_k;

    for (int64_t t = 0; q && k && t < o->labels; t++)
        add_cell(p, t * q, (t + 1) * q, t * k, (t + 1) * k);
}

static void find_cells(const struct exact *x, struct cells *p, int64_t set,
                       const struct exact_seq *s, int64_t round, struct sort_scratch *r)
{
    const struct order *o = x->order;
    const int64_t at_q = (set * o->rounds + round) * o->q_rows + order_q_row(x, s);
    const int64_t at_k = (set * o->rounds + round) * o->k_rows + order_k_row(x, s);

    if (round == o->rounds) {
        match_alone(x, p, set, s);
        return;
    }
    p->n_q = sort_labels(o->label_q + at_q, s->s.nq, r, p->list_q);
    if (o->how.shared_qk) {
        memcpy(p->list_k, p->list_q, (size_t)p->n_q * sizeof *p->list_k);
        p->n_k = p->n_q;
    } else
        p->n_k = sort_labels(o->label_k + at_k, s->s.nk, r, p->list_k);
    if (o->how.chunk)
        match_chunks(p, o->label_q + at_q);
    else
        match_labels(p, o->label_q + at_q,
                     o->how.shared_qk ? o->label_q + at_q : o->label_k + at_k);
}

/*
 * Pieces
 */

int order_key_slot(const struct exact *x, int used, int64_t n)
{
    const int depth = x->bf16 ? x->k->depth : 1;
    const int at = (int)round_up(used, x->kpack);

    return at % depth + n > depth ? (int)round_up(at, depth) : at;
}

/* A piece of one large cell. */
static struct order_piece *add_large(struct cells *p, int64_t cell, int64_t block0,
                                     int64_t blocks)
{
    const struct order_cell *c = &p->cells[cell];
    struct order_piece      *piece = &p->pieces[p->n_pieces++];

    *piece = (struct order_piece){ .cell0 = (int32_t)cell,
                                   .cells = 1,
                                   .block0 = (int32_t)block0,
                                   .blocks = (int32_t)blocks,
                                   .tiles = (int32_t)div_up(c->k1 - c->k0, TILE) };
    return piece;
}

/* Forward, blocks are independent; a piece has some of them, which share the packing of
 * keys. */
static void split_blocks(struct cells *p, int64_t cell, int64_t blocks, int64_t tiles)
{
    const int64_t each = max64(MIN_BLOCKS, MIN_SHARED / tiles);

    for (int64_t b = 0; b < blocks; b += each)
        add_large(p, cell, b, min64(each, blocks - b));
}

/* Backward, a group of blocks meets one group of tiles in each phase, and no two groups
 * of blocks the same. */
static void split_square(struct cells *p, int64_t cell, int64_t blocks, int64_t tiles)
{
    const int64_t by = div_up(blocks, GROUPS), tile_by = div_up(tiles, GROUPS);

    for (int64_t g = 0; g < GROUPS * (int64_t)GROUPS; g++) {
        const int64_t block = g / GROUPS * by;
        const int64_t tile = (g / GROUPS + g) % GROUPS * tile_by;

        if (block >= blocks || tile >= tiles) continue;
        struct order_piece *piece =
            add_large(p, cell, block, min64(by, blocks - block));
        piece->tile0 = (int32_t)tile;
        piece->tiles = (int32_t)min64(tile_by, tiles - tile);
        piece->phase = (int32_t)(g % GROUPS);
    }
}

static void add_one_cell(struct cells *p, int64_t cell, bool backward)
{
    const struct order_cell *c = &p->cells[cell];
    const int64_t            blocks = div_up(c->q1 - c->q0, LANES);
    const int64_t            tiles = div_up(c->k1 - c->k0, TILE);

    if (!backward)
        split_blocks(p, cell, blocks, tiles);
    else if (blocks * tiles >= MIN_SHARED)
        split_square(p, cell, blocks, tiles);
    else
        add_large(p, cell, 0, blocks);
}

/* Small cells share a block of lanes and a tile of keys. */
static void find_pieces(const struct exact *x, struct cells *p, bool backward)
{
    for (int64_t c = 0, next; c < p->n_cells; c = next) {
        int lanes = 0, keys = 0;

        for (next = c; next < p->n_cells; next++) {
            const struct order_cell *cell = &p->cells[next];
            const int64_t            nq = cell->q1 - cell->q0, nk = cell->k1 - cell->k0;
            const int                at = order_key_slot(x, keys, nk);

            if (lanes + nq > LANES || at + nk > TILE) break;
            lanes += (int)nq;
            keys = at + (int)nk;
        }
        if (next <= c + 1) {
            add_one_cell(p, c, backward);
            next = c + 1;
            continue;
        }
        p->pieces[p->n_pieces++] = (struct order_piece){
            .cell0 = (int32_t)c, .cells = (int32_t)(next - c), .blocks = 1, .tiles = 1
        };
    }
    /* With chunks a key is in two consecutive cells, so neighbours have different
     * phases. */
    if (!x->order->how.chunk || !backward) return;
    int32_t last = -1, parity = 0;
    for (int64_t i = 0; i < p->n_pieces; i++) {
        struct order_piece *piece = &p->pieces[i];
        if (piece->cell0 != last) parity ^= 1;
        last = piece->cell0;
        piece->phase = 2 * piece->phase + parity;
    }
}

/* Set the arrays of a part, and find its cells and pieces. */
static void make_part(struct exact *x, int64_t i, int64_t round, bool backward,
                      struct sort_scratch *r)
{
    struct order           *o = x->order;
    const int64_t           set = i / o->seqs, at = i % o->seqs;
    const struct exact_seq *s = &x->seqs[o->seq0 + at];
    struct cells           *p = &o->parts[i];
    const int64_t           q = o->topk ? 0 : order_q_row(x, s);
    const int64_t           k = o->topk ? 0 : order_k_row(x, s);

    p->list_q = o->list_q + set * (o->topk ? o->entries_q : o->q_rows) + q;
    p->list_k = o->list_k + set * (o->topk ? o->entries_k : o->k_rows) + k;
    p->cells = o->cells + set * o->cell_cap + q;
    p->pieces = o->pieces + set * o->piece_cap + order_pieces_before(q, k, at);
    p->n_q = p->n_k = p->n_cells = p->n_pieces = 0;
    if (o->topk)
        match_topk(o, p);
    else
        find_cells(x, p, set, s, round, r);
    find_pieces(x, p, backward);
    assert(p->n_cells <= o->cell_cap && p->n_pieces <= o->piece_cap);
}

struct cells_job {
    struct exact *x;
    int64_t       round;
    bool          backward;
};

static void part_job(void *arg, int64_t i, int thread)
{
    const struct cells_job *m = arg;
    struct sort_scratch     scratch = sort_scratch_of(m->x, thread);

    make_part(m->x, i, m->round, m->backward, &scratch);
}

void order_cells(struct exact *x, int64_t round, bool backward)
{
    struct order *o = x->order;
    const int     threads = exact_threads(x, o->n_parts, x->plan->cost.forward_flops);
    struct cells_job m = { x, round, backward };

    phases_run(x->k, x->exec.shared, threads,
               &(struct phase){ o->n_parts, 1, part_job, &m }, 1);
    o->n_phases = 0;
    for (int64_t i = 0; i < o->n_parts; i++) {
        o->first[i + 1] = o->first[i] + o->parts[i].n_pieces;
        for (int64_t t = 0; t < o->parts[i].n_pieces; t++)
            o->n_phases = max64(o->n_phases, o->parts[i].pieces[t].phase + 1);
    }
}

int64_t order_tasks(const struct exact *x)
{
    const struct order *o = x->order;
    return o->first[o->n_parts] * (x->heads / o->sets);
}

struct order_task order_task(const struct exact *x, int64_t i)
{
    const struct order *o = x->order;
    const int64_t       per = x->heads / o->sets, piece = i / per;
    int64_t             low = 0, high = o->n_parts;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (o->first[middle] <= piece)
            low = middle;
        else
            high = middle;
    }
    const int64_t set = low / o->seqs;
    return (struct order_task){ .part = &o->parts[low],
                                .piece = &o->parts[low].pieces[piece - o->first[low]],
                                .seq = &x->seqs[o->seq0 + low % o->seqs],
                                .set = set,
                                .head = per > 1 ? i % per : set };
}
