/* epilogue.c -- the epilogue of a product, forward and backward.
 *
 * Four vectors of a row are computed at a time, so that options are tested once for all of
 * them and chains of dependent operations overlap; then one, and the partial one at the end.
 */

enum { EPILOGUE_VECS = 4 }; /* vectors */

/* V vectors of a row from column c on; `some` elements of one, or all (0). */
INLINE void ISA(cells_get)(vf *x, const char *row, int c, const int V, const int some,
                           const int dtype)
{
    UNROLL(4)
    for (int v = 0; v < V; v++)
        x[v] = ISA(row_get)(row, c + v * VF_LEN, some, dtype);
}

INLINE void ISA(cells_put)(char *row, int c, const vf *x, const int V, const int some,
                           const int dtype)
{
    UNROLL(4)
    for (int v = 0; v < V; v++)
        ISA(row_put)(row, c + v * VF_LEN, x[v], some, dtype);
}

INLINE void ISA(cells_add)(vf *x, const char *row, int c, const int V, const int some,
                           const int dtype)
{
    UNROLL(4)
    for (int v = 0; v < V; v++)
        x[v] = vf_add(x[v], ISA(row_get)(row, c + v * VF_LEN, some, dtype));
}

INLINE void ISA(cells_dropout)(vf *x, uint64_t bits, int first, float factor,
                               const int V)
{
    UNROLL(4)
    for (int v = 0; v < V; v++)
        x[v] = vf_select(vm_bits(bits, first + v * VF_LEN),
                         vf_mul(x[v], vf_set1(factor)), vf_zero());
}

INLINE void ISA(cells_act)(vf *x, const int kind, const int V, const int fast)
{
    UNROLL(4)
    for (int v = 0; v < V; v++)
        x[v] = vf_act(x[v], kind, fast);
}

INLINE void ISA(cells_activate)(vf *x, int act, const int V, const int fast)
{
    switch (act) {
    case FOCI_ACT_NONE: break;
    case FOCI_ACT_RELU: ISA(cells_act)(x, FOCI_ACT_RELU, V, fast); break;
    case FOCI_ACT_GELU: ISA(cells_act)(x, FOCI_ACT_GELU, V, fast); break;
    case FOCI_ACT_GELU_TANH: ISA(cells_act)(x, FOCI_ACT_GELU_TANH, V, fast); break;
    default: ISA(cells_act)(x, FOCI_ACT_SILU, V, fast); break;
    }
}

/* Sums and their bias, which are stored too where that is wanted. */
INLINE void ISA(cells_biased)(vf *x, const float *in, const float *bias, char *pre,
                              int c, const int V, const int some, const int dtype)
{
    ISA(cells_get)(x, (const char *)in, c, V, some, FOCI_F32);
    if (bias) ISA(cells_add)(x, (const char *)bias, c, V, some, FOCI_F32);
    if (pre) ISA(cells_put)(pre, c, x, V, some, dtype);
}

/* Rows of one product. */
struct ISA(epilogue_row) {
    char        *out, *pre, *pre_up;
    const float *in, *up;
    const char  *more;
    uint64_t     dropout_mask;
};

INLINE void ISA(epilogue_cells)(const struct ISA(epilogue_row) * r,
                                const struct epilogue *f, int c, const int V,
                                const int some, const int dtype)
{
    vf x[EPILOGUE_VECS], u[EPILOGUE_VECS];

    ISA(cells_biased)(x, r->in, f->bias, r->pre, c, V, some, dtype);
    ISA(cells_activate)(x, f->act, V, dtype == FOCI_BF16);
    if (f->up) {
        ISA(cells_biased)(u, r->up, f->bias_up, r->pre_up, c, V, some, dtype);
        UNROLL(4)
        for (int v = 0; v < V; v++)
            x[v] = vf_mul(x[v], u[v]);
    }
    if (f->dropout_mask)
        ISA(cells_dropout)(x, r->dropout_mask, f->first + c, f->factor, V);
    if (f->more) ISA(cells_add)(x, r->more, c, V, some, dtype);
    ISA(cells_put)(r->out, c, x, V, some, dtype);
}

INLINE void ISA(epilogue_type)(char *out, int64_t ld_out, const float *in, int64_t ld_in,
                               const struct epilogue *f, int n, int d, const int dtype)
{
    for (int i = 0; i < n; i++) {
        const struct ISA(epilogue_row)
            r = { .out = ISA(row_of)(out, i, ld_out, dtype),
                  .pre = ISA(row_of)(f->pre, i, f->ld_pre, dtype),
                  .pre_up = ISA(row_of)(f->pre_up, i, f->ld_pre, dtype),
                  .in = in + i * ld_in,
                  .up = f->up ? f->up + i * ld_in : NULL,
                  .more = ISA(row_of)(f->more, i, f->ld_more, dtype),
                  .dropout_mask = f->dropout_mask ? f->dropout_mask[i] : 0 };
        int c = 0;

        for (; c + EPILOGUE_VECS * VF_LEN <= d; c += EPILOGUE_VECS * VF_LEN)
            ISA(epilogue_cells)(&r, f, c, EPILOGUE_VECS, 0, dtype);
        for (; c + VF_LEN <= d; c += VF_LEN)
            ISA(epilogue_cells)(&r, f, c, 1, 0, dtype);
        if (c < d) ISA(epilogue_cells)(&r, f, c, 1, d - c, dtype);
    }
}

static void ISA(gemm_epilogue)(void *out, int64_t ld_out, int dtype, const float *in,
                               int64_t ld_in, const struct epilogue *f, int n, int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(epilogue_type)(out, ld_out, in, ld_in, f, n, d, FOCI_F32); break;
    case FOCI_BF16:
        ISA(epilogue_type)(out, ld_out, in, ld_in, f, n, d, FOCI_BF16);
        break;
    default: ISA(epilogue_type)(out, ld_out, in, ld_in, f, n, d, FOCI_F16); break;
    }
}

/*
 * Backward
 */

INLINE void ISA(cells_slope)(vf *d, const vf *x, const int kind, const int V,
                             const int fast)
{
    UNROLL(4)
    for (int v = 0; v < V; v++)
        d[v] = vf_act_back(d[v], x[v], kind, fast);
}

INLINE void ISA(cells_back)(vf *d, const vf *x, int act, const int V, const int fast)
{
    switch (act) {
    case FOCI_ACT_NONE: break;
    case FOCI_ACT_RELU: ISA(cells_slope)(d, x, FOCI_ACT_RELU, V, fast); break;
    case FOCI_ACT_GELU: ISA(cells_slope)(d, x, FOCI_ACT_GELU, V, fast); break;
    case FOCI_ACT_GELU_TANH: ISA(cells_slope)(d, x, FOCI_ACT_GELU_TANH, V, fast); break;
    default: ISA(cells_slope)(d, x, FOCI_ACT_SILU, V, fast); break;
    }
}

struct ISA(back_row) {
    char        *out, *out_up;
    const float *in;
    const char  *pre, *pre_up, *more;
    uint64_t     dropout_mask;
};

/* d u and d act(x): of what a gate has let through, and of what it was let through by. */
INLINE void ISA(back_gate)(const struct ISA(back_row) * r, vf *d, const vf *x, int act,
                           int c, const int V, const int some, const int dtype)
{
    vf u[EPILOGUE_VECS], a[EPILOGUE_VECS];

    UNROLL(4)
    for (int v = 0; v < V; v++)
        a[v] = x[v];
    ISA(cells_activate)(a, act, V, dtype == FOCI_BF16);
    ISA(cells_get)(u, r->pre_up, c, V, some, dtype);
    UNROLL(4)
    for (int v = 0; v < V; v++) {
        a[v] = vf_mul(d[v], a[v]);
        d[v] = vf_mul(d[v], u[v]);
    }
    ISA(cells_put)(r->out_up, c, a, V, some, dtype);
}

INLINE void ISA(back_cells)(const struct ISA(back_row) * r,
                            const struct epilogue_back *f, int c, const int V,
                            const int some, const int dtype)
{
    vf d[EPILOGUE_VECS], x[EPILOGUE_VECS];

    ISA(cells_get)(d, (const char *)r->in, c, V, some, FOCI_F32);
    if (f->dropout_mask)
        ISA(cells_dropout)(d, r->dropout_mask, f->first + c, f->factor, V);
    if (f->act != FOCI_ACT_NONE || r->out_up) {
        ISA(cells_get)(x, r->pre, c, V, some, dtype);
        if (r->out_up) ISA(back_gate)(r, d, x, f->act, c, V, some, dtype);
        ISA(cells_back)(d, x, f->act, V, dtype == FOCI_BF16);
    }
    if (f->more) ISA(cells_add)(d, r->more, c, V, some, dtype);
    ISA(cells_put)(r->out, c, d, V, some, dtype);
}

INLINE void ISA(back_type)(char *out, int64_t ld_out, const float *in, int64_t ld_in,
                           const struct epilogue_back *f, int n, int d, const int dtype)
{
    for (int i = 0; i < n; i++) {
        const struct ISA(back_row)
            r = { .out = ISA(row_of)(out, i, ld_out, dtype),
                  .out_up = ISA(row_of)(f->out_up, i, ld_out, dtype),
                  .in = in + i * ld_in,
                  .pre = ISA(row_of)(f->pre, i, f->ld_pre, dtype),
                  .pre_up = ISA(row_of)(f->pre_up, i, f->ld_pre, dtype),
                  .more = ISA(row_of)(f->more, i, f->ld_more, dtype),
                  .dropout_mask = f->dropout_mask ? f->dropout_mask[i] : 0 };
        int c = 0;

        for (; c + EPILOGUE_VECS * VF_LEN <= d; c += EPILOGUE_VECS * VF_LEN)
            ISA(back_cells)(&r, f, c, EPILOGUE_VECS, 0, dtype);
        for (; c + VF_LEN <= d; c += VF_LEN)
            ISA(back_cells)(&r, f, c, 1, 0, dtype);
        if (c < d) ISA(back_cells)(&r, f, c, 1, d - c, dtype);
    }
}

static void ISA(gemm_epilogue_back)(void *out, int64_t ld_out, int dtype,
                                    const float *in, int64_t ld_in,
                                    const struct epilogue_back *f, int n, int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(back_type)(out, ld_out, in, ld_in, f, n, d, FOCI_F32); break;
    case FOCI_BF16: ISA(back_type)(out, ld_out, in, ld_in, f, n, d, FOCI_BF16); break;
    default: ISA(back_type)(out, ld_out, in, ld_in, f, n, d, FOCI_F16); break;
    }
}
