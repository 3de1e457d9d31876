/* epilogue.c -- the epilogue of a product, forward and backward. */

/* 1 / (1 + e^-x) */
static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Phi(x) */
static float normal(float x) { return 0.5f * erfcf(-0.70710678f * x); }

/* x sigmoid of this is GELU by its tanh; and the slope of this. */
static float gelu_logit(float x) { return 1.59576912f * x + 0.0713548163f * x * x * x; }
static float gelu_logit_slope(float x) { return 1.59576912f + 0.214064449f * x * x; }

/* Beyond these what multiplies x is 0 or 1. */
static float cut(float x, float far) { return x < -far ? -far : x > far ? far : x; }

enum { FAR = 30 };

static float activate(float x, int act)
{
    const float low = x < -FAR ? -FAR : x;

    switch (act) {
    case FOCI_ACT_RELU: return positive(x);
    case FOCI_ACT_GELU: return low * normal(x);
    case FOCI_ACT_GELU_TANH: return low * sigmoid(gelu_logit(cut(x, FAR)));
    case FOCI_ACT_SILU: return (x < -87.0f ? -87.0f : x) * sigmoid(x);
    default: return x;
    }
}

/* d act'(x) */
static float activate_back(float d, float x, int act)
{
    float s, z;

    switch (act) {
    case FOCI_ACT_RELU: return x <= 0.0f ? 0.0f : d;
    case FOCI_ACT_GELU:
        z = cut(x, FAR);
        return d * (normal(z) + 0.39894228f * z * expf(-0.5f * z * z));
    case FOCI_ACT_GELU_TANH:
        z = cut(x, FAR);
        s = sigmoid(gelu_logit(z));
        return d * (s + z * s * (1.0f - s) * gelu_logit_slope(z));
    case FOCI_ACT_SILU:
        z = cut(x, 87.0f);
        s = sigmoid(z);
        return d * (s + z * s * (1.0f - s));
    default: return d;
    }
}

static void gemm_epilogue(void *out, int64_t ld_out, int dtype, const float *in,
                          int64_t ld_in, const struct epilogue *f, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            float x = in[i * ld_in + c];

            if (f->bias) x += f->bias[c];
            if (f->pre) set_element(f->pre, i * f->ld_pre + c, dtype, x);
            x = activate(x, f->act);
            if (f->up) {
                float u = f->up[i * ld_in + c];

                if (f->bias_up) u += f->bias_up[c];
                if (f->pre_up) set_element(f->pre_up, i * f->ld_pre + c, dtype, u);
                x *= u;
            }
            if (f->dropout_mask)
                x = f->dropout_mask[i] >> (f->first + c) & 1 ? x * f->factor : 0.0f;
            if (f->more) x += element(f->more, i * f->ld_more + c, dtype);
            set_element(out, i * ld_out + c, dtype, x);
        }
}

static void gemm_epilogue_back(void *out, int64_t ld_out, int dtype, const float *in,
                               int64_t ld_in, const struct epilogue_back *p, int n,
                               int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            const int64_t at = i * p->ld_pre + c;
            float         g = in[i * ld_in + c];

            if (p->dropout_mask)
                g = p->dropout_mask[i] >> (p->first + c) & 1 ? g * p->factor : 0.0f;
            const float x = p->pre ? element(p->pre, at, dtype) : 0.0f;
            if (p->out_up) {
                set_element(p->out_up, i * ld_out + c, dtype, g * activate(x, p->act));
                g *= element(p->pre_up, at, dtype);
            }
            g = activate_back(g, x, p->act);
            if (p->more) g += element(p->more, i * p->ld_more + c, dtype);
            set_element(out, i * ld_out + c, dtype, g);
        }
}
