/* attend.c -- fused attention of a block of queries, one query at a time. */

/* Tiles of 16 rows of 16 pairs.  Four scores of one tile of keys and four of the next are
 * what packing with saturation puts side by side. */
static int attend_key(int half, int i) { return i / 4 * 8 + half * 4 + i % 4; }

/* Columns c and c + 1 of row j as a pair, of n rows of d. */
static uint32_t stored_pair(const uint16_t *in, int64_t ld, int n, int d, int j, int c)
{
    const uint32_t low = j < n && c < d ? in[j * ld + c] : 0;
    const uint32_t high = j < n && c + 1 < d ? in[j * ld + c + 1] : 0;

    return low | high << 16;
}

static void attend_keys(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                        int wide)
{
    for (int j = 0; j < LANES; j += ATTEND_KEYS)
        for (int c = 0; c < wide; c += 32)
            for (int half = 0; half < 2; half++)
                for (int t = 0; t < 16; t++)
                    for (int i = 0; i < 16; i++)
                        *out++ = stored_pair(in, ld, n, d, j + attend_key(half, i),
                                             c + 2 * t);
}

static void attend_values(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                          int wide)
{
    for (int j = 0; j < LANES; j += ATTEND_KEYS)
        for (int c = 0; c < wide; c += 16)
            for (int t = 0; t < 16; t++)
                for (int i = 0; i < 16; i++)
                    *out++ = (stored_pair(in, ld, n, d, j + 2 * t, c + i) & 0xffff) |
                             stored_pair(in, ld, n, d, j + 2 * t + 1, c + i) << 16;
}

static void seen_rows(uint32_t *out, const uint64_t *seen, int n)
{
    memset(out, 0, 2 * LANES * sizeof *out);
    for (int j = 0; j < n; j++)
        for (int r = 0; r < LANES; r++)
            out[j / ATTEND_KEYS * LANES + r] |= (uint32_t)(seen[j] >> r & 1)
                                                << j % ATTEND_KEYS;
}

/* Logits of query r and a group, -inf where it does not see the key. */
static float attend_logits(const struct attend *a, const struct attend_group *g, int r,
                           float *t)
{
    const uint32_t *q = a->q + (int64_t)r * a->dq / 2;
    float           top = -INFINITY;

    for (int x = 0; x < ATTEND_KEYS; x++) {
        const int half = x / 16, j = attend_key(half, x % 16);
        float     s = 0;

        t[j] = -INFINITY;
        if (g->seen && !(g->seen[r] >> j & 1)) continue;
        for (int c = 0; c < a->dq / 2; c++) {
            const uint32_t k =
                g->keys[((c / 16 * 2 + half) * 16 + c % 16) * 16 + x % 16];

            s += from_bf16(q[c] & 0xffff) * from_bf16(k & 0xffff);
            s += from_bf16(q[c] >> 16) * from_bf16(k >> 16);
        }
        t[j] = a->f[r] * s;
        top = t[j] > top ? t[j] : top;
    }
    return top;
}

/* One query and one group. */
static void attend_row(const struct attend *a, const struct attend_group *g, int r)
{
    float *const o = a->o + r * a->ldo;
    float        t[ATTEND_KEYS];
    const float  top = attend_logits(a, g, r, t);

    if (!a->held && top > -INFINITY && !(top - a->m[r] < 0.5f)) {
        const float m = ceilf(top) + 24, by = exp2f(a->m[r] - m);

        for (int c = 0; c < a->dv; c++)
            o[c] *= by;
        a->l[r] *= by;
        a->m[r] = m;
    }
    for (int j = 0; j < ATTEND_KEYS; j++) {
        if (t[j] == -INFINITY || (!a->held && t[j] - a->m[r] < -63)) continue;
        const float w = from_bf16(to_bf16(exp2f(t[j] - a->m[r])));

        a->l[r] += w;
        for (int c = 0; c < a->dv; c++) {
            const uint32_t v = g->values[(c / 16 * 16 + j / 2) * 16 + c % 16];
            o[c] += w * from_bf16(v >> j % 2 * 16 & 0xffff);
        }
    }
}

static void attend_bf16(const struct attend *a)
{
    for (int r = 0; r < LANES && !a->add; r++) {
        memset(a->o + r * a->ldo, 0, (size_t)a->dv * sizeof *a->o);
        a->l[r] = 0;
    }
    for (int i = 0; i < a->n; i++)
        for (int r = 0; r < LANES; r++)
            attend_row(a, &a->group[i], r);
}
