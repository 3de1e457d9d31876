/* exact_cells.c -- sort rows by label, find the cells, share them out as work.
 *
 * Sorting is by digits of eight bits, stable, from rows in their order, so that rows of
 * one label stay in theirs.  It takes time linear in the rows, for labels below 256 in
 * one pass.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_order.h"

enum {
    DIGITS = 256,
    GROUPS = 4,  /* of blocks and of tiles, of a cell whose backward pass is shared */
    LARGE = 64,  /* tiles of pairs that are worth it */
    AT_LEAST = 4 /* blocks that share the packing of keys */
};

struct sorting sorting_take(const struct exact *x, struct arena *a)
{
    const int64_t  n = x->p->len_q + x->p->len_k;
    struct sorting r;

    for (int i = 0; i < 2; i++) {
        r.key[i] = arena_take(a, n, sizeof(uint64_t));
        r.row[i] = arena_take(a, n, sizeof(int32_t));
    }
    return r;
}

size_t order_cells_scratch(const struct exact *x)
{
    struct arena one = { 0 };
    sorting_take(x, &one);
    return one.used;
}

void sort_rows(struct sorting *r, int64_t n, uint64_t most)
{
    for (int shift = 0; shift < 64 && most >> shift; shift += 8) {
        int64_t at[DIGITS] = { 0 }, sum = 0;

        for (int64_t i = 0; i < n; i++)
            at[r->key[0][i] >> shift & (DIGITS - 1)]++;
        for (int d = 0; d < DIGITS; d++) {
            const int64_t count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t to = at[r->key[0][i] >> shift & (DIGITS - 1)]++;
            r->key[1][to] = r->key[0][i];
            r->row[1][to] = r->row[0][i];
        }
        uint64_t *const key = r->key[0];
        int32_t *const  row = r->row[0];
        r->key[0] = r->key[1];
        r->row[0] = r->row[1];
        r->key[1] = key;
        r->row[1] = row;
    }
}

/*
 * Labels that are any numbers become small ones
 */

uint64_t sort_bits(double y)
{
    uint64_t u;

    y += 0.0;
    memcpy(&u, &y, sizeof u);
    return u >> 63 ? ~u : u | UINT64_C(1) << 63;
}

/* Enter n labels, keys after queries, in the room; NaN is none. */
static int64_t enter_raw(const double *raw, int64_t n, int32_t first, struct sorting *r,
                         int64_t used, double *least, double *most)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(raw[i])) continue;
        *least = fmin(*least, raw[i]);
        *most = fmax(*most, raw[i]);
        memcpy(&r->key[0][used], &raw[i], sizeof *raw);
        r->row[0][used++] = first + (int32_t)i;
    }
    return used;
}

/* Number the labels of a sequence upward, those of queries and of keys together. */
static void number_labels(const struct exact *x, const struct exact_seq *s,
                          int64_t at_q, int64_t at_k, struct sorting *r)
{
    const struct order *o = x->order;
    const int64_t       nq = s->s.nq, nk = o->how.shared ? 0 : s->s.nk;
    double              least = INFINITY, most = -INFINITY;
    int64_t             n = enter_raw(o->raw_q + at_q, nq, 0, r, 0, &least, &most);

    if (nk) n = enter_raw(o->raw_k + at_k, nk, (int32_t)nq, r, n, &least, &most);
    const bool small = most - least < 0x1p53 && fabs(least) < 0x1p53;
    for (int64_t i = 0; i < n; i++) {
        double y;
        memcpy(&y, &r->key[0][i], sizeof y);
        r->key[0][i] = small ? (uint64_t)(y - least) : sort_bits(y);
    }
    sort_rows(r, n, small ? (uint64_t)(n ? most - least : 0) : UINT64_MAX);

    for (int64_t i = 0; i < nq; i++)
        o->label_q[at_q + i] = -1;
    for (int64_t j = 0; j < nk; j++)
        o->label_k[at_k + j] = -1;
    int32_t number = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = r->row[0][i];
        if (i && r->key[0][i] != r->key[0][i - 1]) number++;
        if (row < nq)
            o->label_q[at_q + row] = number;
        else
            o->label_k[at_k + row - nq] = number;
    }
}

/*
 * Sorted lists
 */

/* The rows that have a label, sorted; the result is their number. */
static int64_t sort_list(const int32_t *label, int64_t n, struct sorting *r,
                         int32_t *list)
{
    int64_t  used = 0;
    uint64_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        if (label[i] < 0) continue;
        const uint64_t key = (uint64_t)label[i];
        if (key > most) most = key;
        r->key[0][used] = key;
        r->row[0][used++] = (int32_t)i;
    }
    sort_rows(r, used, most);
    memcpy(list, r->row[0], (size_t)used * sizeof *list);
    return used;
}

/* Where rows are cut into chunks, labels become numbers of cells. */
static void number_chunks(const struct exact *x, const struct exact_seq *s, int64_t at,
                          struct sorting *r, int32_t *list)
{
    const struct order *o = x->order;
    int32_t            *label = o->label_q + at;
    const int64_t       n = sort_list(label, s->s.nq, r, list);
    int32_t             cell = -1, last = -1;

    for (int64_t i = 0; i < n; i++) {
        const int32_t now = label[list[i]];
        const bool    first = now != last;

        if (first || i % o->how.chunk == 0) cell++;
        /* The mark of a cell is that of its first row. */
        const bool marked =
            first || (i % o->how.chunk != 0 && (label[list[i - 1]] & 1) != 0);
        label[list[i]] = 2 * cell + marked;
        last = now;
    }
}

/* What has to be done once to the labels of one round. */
static void settle(const struct exact *x, int64_t set, const struct exact_seq *s,
                   int64_t round, struct sorting *r, int32_t *list)
{
    const struct order *o = x->order;
    const int64_t at_q = (set * o->rounds + round) * o->q_rows + order_q_row(x, s);
    const int64_t at_k = (set * o->rounds + round) * o->k_rows + order_k_row(x, s);

    if (o->raw_q) number_labels(x, s, at_q, at_k, r);
    if (o->how.chunk) number_chunks(x, s, at_q, r, list);
}

/*
 * Cells
 */

static void add_cell(struct cells *p, int64_t q0, int64_t q1, int64_t k0, int64_t k1)
{
    p->cells[p->n_cells++] =
        (struct cell){ (int32_t)q0, (int32_t)q1, (int32_t)k0, (int32_t)k1 };
}

static int64_t run_end(const int32_t *label, const int32_t *list, int64_t i, int64_t n)
{
    const int32_t now = label[list[i]];
    while (i < n && label[list[i]] == now)
        i++;
    return i;
}

/* Labels that both queries and keys have. */
static void meet_labels(struct cells *p, const int32_t *of_q, const int32_t *of_k)
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

/* Queries of a cell see it and the one before, unless it is the first of its label. */
static void meet_chunks(struct cells *p, const int32_t *label)
{
    int64_t before = 0;

    for (int64_t q = 0, q1; q < p->n_q; before = q, q = q1) {
        q1 = run_end(label, p->list_q, q, p->n_q);
        add_cell(p, q, q1, label[p->list_q[q]] & 1 ? q : before, q1);
    }
}

/* Rows that have a label and saw nothing see themselves. */
static void meet_alone(const struct exact *x, struct cells *p, int64_t set,
                       const struct exact_seq *s)
{
    const struct order *o = x->order;
    const int64_t       row = order_q_row(x, s);

    for (int64_t i = 0; i < s->s.nq; i++) {
        if (o->any[set * o->q_rows + row + i] ||
            o->label_q[set * o->rounds * o->q_rows + row + i] < 0)
            continue;
        p->list_q[p->n_q] = p->list_k[p->n_q] = (int32_t)i;
        add_cell(p, p->n_q, p->n_q + 1, p->n_q, p->n_q + 1);
        p->n_q++;
    }
    p->n_k = p->n_q;
}

/* Each label has as many of either. */
static void meet_taken(const struct order *o, struct cells *p)
{
    const int64_t q = o->take_q, k = o->take_k;

    for (int64_t t = 0; q && k && t < o->labels; t++)
        add_cell(p, t * q, (t + 1) * q, t * k, (t + 1) * k);
}

static void find_cells(const struct exact *x, struct cells *p, int64_t set,
                       const struct exact_seq *s, int64_t round, struct sorting *r)
{
    const struct order *o = x->order;
    const int64_t at_q = (set * o->rounds + round) * o->q_rows + order_q_row(x, s);
    const int64_t at_k = (set * o->rounds + round) * o->k_rows + order_k_row(x, s);

    if (round == o->rounds) {
        meet_alone(x, p, set, s);
        return;
    }
    p->n_q = sort_list(o->label_q + at_q, s->s.nq, r, p->list_q);
    if (o->how.shared) {
        memcpy(p->list_k, p->list_q, (size_t)p->n_q * sizeof *p->list_k);
        p->n_k = p->n_q;
    } else
        p->n_k = sort_list(o->label_k + at_k, s->s.nk, r, p->list_k);
    if (o->how.chunk)
        meet_chunks(p, o->label_q + at_q);
    else
        meet_labels(p, o->label_q + at_q,
                    o->how.shared ? o->label_q + at_q : o->label_k + at_k);
}

/*
 * Pieces
 */

int order_place(const struct exact *x, int used, int64_t n)
{
    const int depth = x->bf16 ? x->k->depth : 1;
    const int at = (int)round_up(used, x->per);

    return at % depth + n > depth ? (int)round_up(at, depth) : at;
}

/* A piece of one large cell. */
static struct piece *add_large(struct cells *p, int64_t cell, int64_t block0,
                               int64_t blocks)
{
    const struct cell *c = &p->cells[cell];
    struct piece      *piece = &p->pieces[p->n_pieces++];

    *piece = (struct piece){ .cell0 = (int32_t)cell,
                             .cells = 1,
                             .block0 = (int32_t)block0,
                             .blocks = (int32_t)blocks,
                             .tiles = (int32_t)div_up(c->k1 - c->k0, TILE) };
    return piece;
}

/* Forward, every block is on its own; some together share the packing of keys. */
static void share_blocks(struct cells *p, int64_t cell, int64_t blocks, int64_t tiles)
{
    const int64_t each = max64(AT_LEAST, LARGE / tiles);

    for (int64_t b = 0; b < blocks; b += each)
        add_large(p, cell, b, min64(each, blocks - b));
}

/* Backward, a group of blocks meets one group of tiles in each phase, and no two of them
 * the same. */
static void share_square(struct cells *p, int64_t cell, int64_t blocks, int64_t tiles)
{
    const int64_t by = div_up(blocks, GROUPS), tile_by = div_up(tiles, GROUPS);

    for (int64_t g = 0; g < GROUPS * (int64_t)GROUPS; g++) {
        const int64_t block = g / GROUPS * by;
        const int64_t tile = (g / GROUPS + g) % GROUPS * tile_by;

        if (block >= blocks || tile >= tiles) continue;
        struct piece *piece = add_large(p, cell, block, min64(by, blocks - block));
        piece->tile0 = (int32_t)tile;
        piece->tiles = (int32_t)min64(tile_by, tiles - tile);
        piece->phase = (int32_t)(g % GROUPS);
    }
}

static void add_one_cell(struct cells *p, int64_t cell, bool backward)
{
    const struct cell *c = &p->cells[cell];
    const int64_t      blocks = div_up(c->q1 - c->q0, LANES);
    const int64_t      tiles = div_up(c->k1 - c->k0, TILE);

    if (!backward)
        share_blocks(p, cell, blocks, tiles);
    else if (blocks * tiles >= LARGE)
        share_square(p, cell, blocks, tiles);
    else
        add_large(p, cell, 0, blocks);
}

/* Small cells share a block of lanes and a tile of keys. */
static void find_pieces(const struct exact *x, struct cells *p, bool backward)
{
    for (int64_t c = 0, next; c < p->n_cells; c = next) {
        int lanes = 0, keys = 0;

        for (next = c; next < p->n_cells; next++) {
            const struct cell *cell = &p->cells[next];
            const int64_t      nq = cell->q1 - cell->q0, nk = cell->k1 - cell->k0;
            const int          at = order_place(x, keys, nk);

            if (lanes + nq > LANES || at + nk > TILE) break;
            lanes += (int)nq;
            keys = at + (int)nk;
        }
        if (next <= c + 1) {
            add_one_cell(p, c, backward);
            next = c + 1;
            continue;
        }
        p->pieces[p->n_pieces++] = (struct piece){
            .cell0 = (int32_t)c, .cells = (int32_t)(next - c), .blocks = 1, .tiles = 1
        };
    }
    /* In chunks a key has two cells that follow one another: neighbours take turns. */
    if (!x->order->how.chunk || !backward) return;
    int32_t last = -1, turn = 0;
    for (int64_t i = 0; i < p->n_pieces; i++) {
        struct piece *piece = &p->pieces[i];
        if (piece->cell0 != last) turn ^= 1;
        last = piece->cell0;
        piece->phase = 2 * piece->phase + turn;
    }
}

/* Where the part's arrays lie, and all that is found of it. */
static void make_part(struct exact *x, int64_t i, int64_t round, bool backward,
                      struct sorting *r)
{
    struct order           *o = x->order;
    const int64_t           set = i / o->seqs, at = i % o->seqs;
    const struct exact_seq *s = &x->seqs[o->seq0 + at];
    struct cells           *p = &o->parts[i];
    const int64_t           q = o->takes ? 0 : order_q_row(x, s);
    const int64_t           k = o->takes ? 0 : order_k_row(x, s);

    p->list_q = o->list_q + set * (o->takes ? o->entries_q : o->q_rows) + q;
    p->list_k = o->list_k + set * (o->takes ? o->entries_k : o->k_rows) + k;
    p->cells = o->cells + set * o->cell_cap + q;
    p->pieces = o->pieces + set * o->piece_cap + order_pieces_before(q, k, at);
    p->n_q = p->n_k = p->n_cells = p->n_pieces = 0;
    if (o->takes)
        meet_taken(o, p);
    else
        find_cells(x, p, set, s, round, r);
    find_pieces(x, p, backward);
}

static struct sorting room_of(const struct exact *x, int thread)
{
    const struct order *o = x->order;
    struct arena mine = { .base = o->scratch + (size_t)thread * o->scratch_bytes };

    return sorting_take(x, &mine);
}

static void settle_job(void *arg, int64_t i, int thread)
{
    struct exact           *x = arg;
    struct order           *o = x->order;
    const int64_t           set = i / x->n_seqs;
    const struct exact_seq *s = &x->seqs[i % x->n_seqs];
    int32_t                *list = o->list_q + set * o->q_rows + order_q_row(x, s);
    struct sorting          room = room_of(x, thread);

    for (int64_t round = 0; round < o->rounds; round++)
        settle(x, set, s, round, &room, list);
}

void order_settle(struct exact *x)
{
    const int64_t jobs = x->order->sets * x->n_seqs;
    const int     threads =
        exact_threads(x, jobs * x->order->rounds, x->plan->cost.forward_flops);

    phases_run(x->k, x->plan->shared, threads,
               &(struct phase){ jobs, 1, settle_job, x }, 1);
}

struct making {
    struct exact *x;
    int64_t       round;
    bool          backward;
};

static void part_job(void *arg, int64_t i, int thread)
{
    const struct making *m = arg;
    struct sorting       room = room_of(m->x, thread);

    make_part(m->x, i, m->round, m->backward, &room);
}

void order_cells(struct exact *x, int64_t round, bool backward)
{
    struct order *o = x->order;
    const int     threads = exact_threads(x, o->n_parts, x->plan->cost.forward_flops);
    struct making m = { x, round, backward };

    phases_run(x->k, x->plan->shared, threads,
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

struct task order_task(const struct exact *x, int64_t i)
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
    return (struct task){ .part = &o->parts[low],
                          .piece = &o->parts[low].pieces[piece - o->first[low]],
                          .seq = &x->seqs[o->seq0 + low % o->seqs],
                          .set = set,
                          .head = per > 1 ? i % per : set };
}
