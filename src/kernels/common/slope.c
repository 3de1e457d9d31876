/* slope.c -- weight and gradient of a vector of scores. */

/* The rows of attention of one vector of lanes. */
struct slope {
    vf f, norm, delta;
    vf inv; /* 1 / (unit c) */
};

INLINE struct slope ISA(slope_load)(const struct grad_rows *r, int i)
{
    return (struct slope){
        .f = r->f ? vf_load(r->f + i) : vf_set1(1.0f),
        .norm = vf_load(r->norm + i),
        .delta = vf_load(r->delta + i),
        .inv = vf_set1(r->c != 0.0f ? 1.0f / (r->unit * r->c) : 0.0f),
    };
}

/* The result is w; *ds goes in as dp.  `fast` is enough where both become bf16.  Scores of -inf are masked and yield 0 for
 * both, though the cap would make NaN of them. */
INLINE vf ISA(slope)(vf s, vf *ds, struct slope r, const int kind, const int capped,
                     const int fast)
{
    const vf t = vf_mul(s, r.f);
    const vm dark = vf_eq(t, vf_set1(-INFINITY));
    vf       w, d;

    if (kind == FOCI_WEIGH_RELU2) {
        const vf x = vf_max(vf_zero(), t), xn = vf_mul(x, r.norm);
        w = vf_mul(x, xn);
        d = vf_mul(vf_add(xn, xn), *ds);
    } else {
        const vf e = vf_sub(t, r.norm);
        w = fast ? vf_exp2_fast(e) : vf_exp2(e);
        d = kind == FOCI_WEIGH_L2NORM ? vf_fnma(w, r.delta, *ds) : vf_sub(*ds, r.delta);
        d = vf_mul(w, d);
    }
    if (capped) {
        const vf x = vf_mul(t, r.inv);
        d = vf_mul(d, vf_fnma(x, x, vf_set1(1.0f)));
    }
    *ds = vf_select(dark, vf_zero(), d);
    return vf_select(dark, vf_zero(), w);
}
