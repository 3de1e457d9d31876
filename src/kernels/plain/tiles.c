/* tiles.c -- blocks of large products, and their operands in tile order. */

static void tile_panel(const struct tile_panel *p)
{
    for (int t = 0; t < p->steps; t++)
        for (int i = 0; i < p->rows; i++)
            for (int c = 0; c < TILE_DEPTH; c++)
                p->out[((int64_t)t * p->rows + i) * TILE_DEPTH + c] =
                    i < p->valid ? p->from[t].data[(p->row + i) * p->from[t].ld + c]
                                 : 0;
}

static void tile_rest(struct tile_rest *r, int dtype)
{
    const int64_t size = dtype == FOCI_F32 ? 4 : 2;

    for (; r->rows > 0; r->rows--, r->in += TILE_STRIP) {
        for (int j = 0; j < TILE_STRIP; j++) {
            const char *const more = r->to.more ? r->to.more + j * size : NULL;
            char *const       out = r->to.out + j * size;
            float             x = r->in[j] + (r->to.bias ? r->to.bias[j] : 0.0f);
            uint16_t          h = 0;

            if (dtype == FOCI_F32) {
                float y = 0.0f;
                if (more) memcpy(&y, more, sizeof y);
                x += y;
                memcpy(out, &x, sizeof x);
            } else {
                if (more) memcpy(&h, more, sizeof h);
                if (more) x += from_bf16(h);
                h = to_bf16(x);
                memcpy(out, &h, sizeof h);
            }
        }
        r->to.out += r->to.ld * size;
        if (r->to.more) r->to.more += r->to.ld_more * size;
    }
}

/* The element (t, j) of a strip. */
static float strip_element(const uint32_t *b, int t, int j)
{
    const int      step = t / TILE_DEPTH, pair = t % TILE_DEPTH / 2;
    const uint32_t w = b[((step * 2 + j / 16) * 16 + pair) * 16 + j % 16];

    return from_bf16(t % 2 ? w >> 16 : w & 0xffff);
}

static void strip_sums(const struct tile_multiply *x, const uint32_t *b,
                       const float *sums, float *out)
{
    for (int i = 0; i < x->rows; i++)
        for (int j = 0; j < TILE_STRIP; j++) {
            float sum = sums ? sums[i * TILE_STRIP + j] : 0.0f;

            for (int t = 0; t < x->steps * TILE_DEPTH; t++) {
                const int64_t at =
                    ((int64_t)(t / TILE_DEPTH) * x->rows + i) * TILE_DEPTH +
                    t % TILE_DEPTH;
                sum += from_bf16(x->a[at]) * strip_element(b, t, j);
            }
            out[i * TILE_STRIP + j] = sum;
        }
}

static void tile_multiply(const struct tile_multiply *x)
{
    const int64_t size = x->dtype == FOCI_F32 ? 4 : 2;

    for (int j = 0; j < x->strips; j++) {
        float *const          sums = x->sums + (int64_t)j * TILE_BLOCK;
        const uint32_t *const b = x->b + (int64_t)j * x->steps * 512;
        const bool            written = x->to && x->to[j].out;

        tile_rest(x->rest, x->dtype);
        strip_sums(x, b, x->add ? sums : NULL, written ? x->c[0] : sums);
        if (!written) continue;
        *x->rest = (struct tile_rest){ x->c[0], x->to[j], x->valid };
        x->rest->to.out += x->row * x->to[j].ld * size;
        if (x->to[j].more) x->rest->to.more += x->row * x->to[j].ld_more * size;
    }
    if (x->next) tile_panel(x->next);
}

static void transpose_bf16(uint16_t *out, int64_t ld_out, const uint16_t *in,
                           int64_t ld, int n, int d)
{
    for (int i = 0; i < d; i++)
        for (int t = 0; t < TILE_DEPTH; t++)
            out[i * ld_out + t] = t < n ? in[t * ld + i] : 0;
}

static uint32_t half_at(const void *in, int64_t at, int dtype)
{
    return dtype == FOCI_F32 ? to_bf16(((const float *)in)[at])
                             : ((const uint16_t *)in)[at];
}

static void tile_pairs(uint32_t *out, int64_t ld_out, const void *in, int64_t ld,
                       int dtype, int n, int d)
{
    for (int j = 0; j < (d + TILE_STRIP - 1) / TILE_STRIP * TILE_STRIP; j++) {
        uint32_t *const strip = out + j / TILE_STRIP * ld_out;

        for (int t = 0; t < 16; t++) {
            const bool     low = 2 * t < n && j < d, high = 2 * t + 1 < n && j < d;
            const uint32_t x = low ? half_at(in, 2 * t * ld + j, dtype) : 0;
            const uint32_t y = high ? half_at(in, (2 * t + 1) * ld + j, dtype) : 0;

            strip[(j % TILE_STRIP / 16 * 16 + t) * 16 + j % 16] = x | y << 16;
        }
    }
}

static void tile_strip(uint32_t *out, const void *in, int64_t ld, int dtype, int n,
                       int d)
{
    for (int t = 0; t < (d + TILE_DEPTH - 1) / TILE_DEPTH * TILE_DEPTH; t += 2)
        for (int j = 0; j < TILE_STRIP; j++) {
            const bool     low = j < n && t < d, high = j < n && t + 1 < d;
            const uint32_t x = low ? half_at(in, j * ld + t, dtype) : 0;
            const uint32_t y = high ? half_at(in, j * ld + t + 1, dtype) : 0;
            const int      tile = t / TILE_DEPTH * 2 + j / 16;

            out[(tile * 16 + t % TILE_DEPTH / 2) * 16 + j % 16] = x | y << 16;
        }
}
