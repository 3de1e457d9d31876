/* linear_chunk.c -- which tokens a chunk, or a part of one, has. */
#include <assert.h>

#include "engine/linear/linear_chunk.h"

struct feature_chunk linear_chunk(const struct linear *x, int64_t s, int64_t h,
                                  int64_t t)
{
    const struct linear_seq *seq = &x->seqs[s];
    const int64_t            pos = (seq->first + t) * CHUNK;

    return (struct feature_chunk){
        .seq = seq,
        .s = s,
        .h = h,
        .kv = h / x->per_kv,
        .pos = pos,
        .n = pos < 0 ? 0 : (int)min64(CHUNK, seq->s.nk - pos),
        .r0 = (int)min64(CHUNK, max64(0, seq->pos0 - pos)),
        .r1 = (int)min64(CHUNK, seq->s.nk - pos),
    };
}

static int clamp(int a, int n) { return (int)min64(max64(a, 0), n); }

struct feature_chunk linear_subchunk(const struct feature_chunk *c, int b, int e)
{
    struct feature_chunk p = *c;

    assert(b <= e && e <= CHUNK);
    p.pos += b;
    p.n = clamp(c->n - b, e - b);
    p.r0 = clamp(c->r0 - b, e - b);
    p.r1 = clamp(c->r1 - b, e - b);
    return p;
}

int64_t linear_saved_at(const struct linear *x, const struct feature_chunk *c)
{
    return (c->h * x->p->batch + c->seq->s.b) * x->p->len_q + c->seq->s.q0 + c->pos -
           c->seq->pos0;
}
