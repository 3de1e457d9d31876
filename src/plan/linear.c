/* linear.c -- planning of mechanisms of the linear engine. */
#include "plan/plan.h"

foci_linear linear_of(const foci_mech *m)
{
    foci_linear l = { 0 };

    m->def->linear(m, &l);
    return l;
}

/* Products of r of d elements, in any order, for r up to `order`; those whose share is 0
 * are left out. */
static int64_t count_products(const foci_linear *l, int64_t d)
{
    int64_t n = 0, of_r = 1;

    for (int64_t r = 0; r <= l->order; r++) {
        if (l->coeff[r] != 0) n += of_r;
        of_r = of_r * (d + r) / (r + 1);
    }
    return n;
}

int64_t linear_features(const foci_mech *m, const foci_linear *l)
{
    const int64_t d = m->dims.qk;
    int64_t       omega[3] = { 0 };

    switch (l->feature) {
    case FOCI_FEATURE_ONE: return 1;
    case FOCI_FEATURE_POWERS: return 1 + l->order * d;
    case FOCI_FEATURE_PRODUCTS: return count_products(l, d);
    case FOCI_FEATURE_EXP:
    case FOCI_FEATURE_TRIG:
        m->def->tensors[0].shape(m, m->arg, omega);
        return l->both || l->feature == FOCI_FEATURE_TRIG ? 2 * omega[0] : omega[0];
    case FOCI_FEATURE_RELU: return l->cosine ? 2 * d : d;
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_ELU:
    case FOCI_FEATURE_COS:
    case FOCI_FEATURE_SOFTMAX: return d;
    }
    return d;
}

/* Even powers sum to something that is never negative where the series is that of e^x, or
 * a square. */
bool linear_signed(const foci_linear *l)
{
    switch (l->feature) {
    case FOCI_FEATURE_ONE:
    case FOCI_FEATURE_ELU:
    case FOCI_FEATURE_RELU:
    case FOCI_FEATURE_SOFTMAX:
    case FOCI_FEATURE_EXP: return false;
    case FOCI_FEATURE_PRODUCTS: return l->order % 2;
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_COS:
    case FOCI_FEATURE_POWERS:
    case FOCI_FEATURE_TRIG: return true;
    }
    return true;
}

/* Whether the scale means something to it. */
static bool scaled(const foci_linear *l)
{
    switch (l->feature) {
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_POWERS:
    case FOCI_FEATURE_PRODUCTS:
    case FOCI_FEATURE_EXP:
    case FOCI_FEATURE_TRIG: return true;
    default: return false;
    }
}

bool mech_stochastic(const foci_mech *m)
{
    if (m->def->engine != FOCI_ENGINE_LINEAR) return m->def->stochastic;
    const foci_linear l = linear_of(m);

    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does & FOCI_MOD_ROPE) return false;
    return !linear_signed(&l) && !(l.eps > 0) &&
           (l.norm == FOCI_LINEAR_NORM_SUM || l.norm == FOCI_LINEAR_NORM_FEATURE);
}

const char *linear_against(const struct stage *s, const foci_mod_def *mod)
{
    const foci_linear *l = &s->linear;

    if (mod->does & ~(unsigned)(FOCI_MOD_SCALE | FOCI_MOD_ROPE) || mod->row_factor)
        return "it changes logits, and sums over features never form them";
    if (mod->does & FOCI_MOD_SCALE && !scaled(l)) return "its features are not scaled";
    if (mod->does & FOCI_MOD_SCALE && s->score.scale <= 0 &&
        (l->feature == FOCI_FEATURE_EXP || l->feature == FOCI_FEATURE_TRIG))
        return "random features need a scale above 0";
    if (mod->does & FOCI_MOD_ROPE && s->features % 2)
        return "pairs of features are rotated, and their number is odd";
    if (mod->does & FOCI_MOD_ROPE && l->norm == FOCI_LINEAR_NORM_FEATURE)
        return "every feature has its own sum";
    return NULL;
}

/* What a descriptor must not combine.  Features of which the engine knows the log are kept
 * in units that only a division removes. */
const char *linear_fault(const foci_linear *l)
{
    const bool logs = l->feature == FOCI_FEATURE_EXP ||
                      l->feature == FOCI_FEATURE_TRIG ||
                      l->feature == FOCI_FEATURE_SOFTMAX;
    const bool each = l->norm == FOCI_LINEAR_NORM_FEATURE;

    if (each && l->feature != FOCI_FEATURE_SOFTMAX)
        return "only FOCI_FEATURE_SOFTMAX can have FOCI_LINEAR_NORM_FEATURE";
    if (logs && ((l->norm != FOCI_LINEAR_NORM_SUM && !each) || l->eps > 0))
        return "features that are powers of e have to be divided by their sums, and "
               "eps "
               "has to be 0";
    return logs && l->decays ? "features that are powers of e cannot have a decay"
                             : NULL;
}
