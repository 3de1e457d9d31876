/* map_spec.c -- weights of a spec, on a problem or on queries and keys from files.
 *
 * They are those of the interpreter.  The pattern of a mechanism is seen best with equal
 * queries and keys, where only its own rules tell keys apart.  A mechanism that chooses keys by
 * content shows nothing there, so random data is tried first: if other pairs have weights then,
 * these are drawn.  Mechanisms that compute no weights have some nevertheless, wherever
 * o = A v.  What estimates softmax is shown on random data beside softmax.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/map.h"
#include "foci/mechanism.h"

/* Specs on the same data: that of the user, and one beside it or to be taken away. */
struct map_specs {
    struct run_verb run, other; /* other.spec NULL: there is one */
    struct array    q, k, x;    /* of files */
    char           *beside;    /* the spec of that one, where it is what is estimated */
    bool           *estimates; /* [heads] likewise which heads do; NULL: none does */
    bool            given;     /* q and k are, by files */
    bool            random;    /* q and k are standard normal, not all alike */
};

/*
 * The problem
 */

/* A picture is looked at whole, and its weights are all there at once. */
static int check_size(const struct args *a, const char *text, const foci_problem *p)
{
    if (p->batch != 1)
        return usage_error(a, "%s has a batch of %lld; a map shows one sequence, b1",
                           text, (long long)p->batch);
    if (p->len_q < 1 || p->len_k < 1 || p->len_q > MAP_MOST_LEN ||
        p->len_k > MAP_MOST_LEN)
        return usage_error(
            a, "%s has %lld queries and %lld keys; a map takes 1 to %d of each", text,
            (long long)p->len_q, (long long)p->len_k, MAP_MOST_LEN);
    if (p->heads < 1 || p->heads > MAP_MOST_HEADS ||
        p->heads * p->len_q * p->len_k > MAP_MOST_PAIRS)
        return usage_error(
            a,
            "%s has %lld heads of %lld x %lld pairs; a map takes up to %d "
            "heads and %d pairs in all",
            text, (long long)p->heads, (long long)p->len_q, (long long)p->len_k,
            MAP_MOST_HEADS, MAP_MOST_PAIRS);
    return EXIT_OK;
}

static void set_layout(foci_layout *l, int64_t rows, int64_t width)
{
    *l = (foci_layout){ .row = width, .head = rows * width };
}

static int load(const struct map *m, const char *option, struct array *x,
                int64_t axes[4])
{
    const int code =
        array_load(m->a, m->ctx, option, option, opt_text(m->a, option), x);
    return code ? code : array_axes(m->a, x, "N x d and H x N x d", axes);
}

/* The problem that the shapes of the files make. */
static int read_files(const struct map *m, struct map_specs *s)
{
    foci_problem *p = &s->run.p;
    int64_t       q[4], k[4], x[4] = { 0 };
    char          seen[SHAPE_TEXT], other[SHAPE_TEXT];

    int code = load(m, "q", &s->q, q);
    if (!code) code = load(m, "k", &s->k, k);
    if (!code && opt_text(m->a, "x")) code = load(m, "x", &s->x, x);
    if (code) return code;
    if (q[3] != k[3] || k[0] != q[0] || k[1] < 1 || q[1] % k[1])
        return failure(
            m->a,
            "--k %s: its shape is %s, and that of --q %s is %s: widths have to "
            "be the same, and the heads of the one to divide those of the other",
            s->k.path, shape_text(s->k.n_dims, s->k.shape, "", seen), s->q.path,
            shape_text(s->q.n_dims, s->q.shape, "", other));
    if (s->x.path && (x[0] != 1 || x[1] != 1 || x[2] != q[2]))
        return failure(m->a,
                       "--x %s: its shape is %s; a row for each query is needed, "
                       "%lld x d",
                       s->x.path, shape_text(s->x.n_dims, s->x.shape, "", seen),
                       (long long)q[2]);
    p->batch = q[0];
    p->heads = q[1];
    p->kv_heads = k[1] == q[1] ? 0 : k[1];
    p->len_q = q[2];
    p->len_k = k[2];
    p->dim_qk = q[3];
    p->dim_x = x[3];
    set_layout(&p->q, q[2], q[3]);
    set_layout(&p->k, k[2], k[3]);
    if (opt_flag(m->a, "causal")) p->flags |= FOCI_FLAG_CAUSAL;
    return check_size(m->a, s->q.path, p);
}

static int find_problem(const struct map *m, struct map_specs *s)
{
    foci_problem *p = &s->run.p;
    const char   *text = m->a->n_words ? m->a->words[0] : NULL;

    s->given = opt_text(m->a, "pattern") == NULL;
    if (s->given) return read_files(m, s);
    const foci_status status = foci_problem_parse(m->ctx, text, p);
    return status ? library_error(m->a, m->ctx, status, NULL)
                  : check_size(m->a, text, p);
}

/*
 * Plans
 */

/* What is random features, or means of queries and keys, in place of softmax. */
static bool estimates(const foci_mech *mech)
{
    foci_linear l = { .order = 0 };

    if (mech->def->nystrom) return true;
    if (!mech->def->linear) return false;
    mech->def->linear(mech, &l);
    return l.feature == FOCI_FEATURE_EXP || l.feature == FOCI_FEATURE_TRIG;
}

/* The heads that do; NULL: none does. */
static bool *find_estimates(const foci_plan *plan, int64_t heads)
{
    foci_group g = { FOCI_SIZED(foci_group) };
    bool      *of = need((size_t)heads, sizeof *of), any = false;

    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        if (foci_plan_group(plan, i, &g) || !estimates(g.mech)) continue;
        any = true;
        for (int64_t h = 0; h < g.heads; h++)
            of[g.head0 + h] = true;
    }
    if (any) return of;
    free(of);
    return NULL;
}

/* The modifiers of "nystrom(landmarks=4) scale(1)". */
static const char *modifiers_of(const char *label)
{
    int depth = 0;

    label += strcspn(label, " (");
    for (; *label && (depth || *label == '('); label++) {
        depth += (*label == '(') - (*label == ')');
        if (!depth) return label + 1;
    }
    return label;
}

/* Softmax in place of what estimates it, with the same modifiers. */
static char *beside(char **labels, const bool *of, int64_t heads)
{
    size_t bytes = 1, used = 0;

    for (int64_t h = 0; h < heads; h++)
        bytes += strlen(labels[h]) + 16;
    char *spec = need(bytes, 1);
    for (int64_t h = 0; h < heads; h++)
        used += (size_t)snprintf(spec + used, bytes - used, "%s1*softmax%s",
                                 h ? " + " : "", of[h] ? modifiers_of(labels[h]) : "");
    return spec;
}

static int make_plan(const struct map *m, struct run_verb *r)
{
    r->p.seed = (uint64_t)opt_int(m->a, "seed", 0);
    if (!r->p.dim_x) assume_x(&r->p);
    int code = run_lists(r);
    if (!code) code = run_check_lists(r);
    if (!code) code = run_words(r);
    if (code) return code;
    const foci_status status = foci_plan_create(m->ctx, r->spec, &r->p, &r->plan);
    return status ? library_error(m->a, m->ctx, status, r->spec) : run_params(r);
}

static char **labels_of(const struct run_verb *r)
{
    char  *full = plan_text(foci_plan_spec, r->plan);
    char **labels = map_labels(r->spec, full, r->p.heads);

    free(full);
    return map_label_heads(r->plan, r->p.heads, labels);
}

/* What is estimated is drawn too, if there is such a thing. */
static void find_beside(struct map_specs *s, char **labels)
{
    const int64_t heads = s->run.p.heads;

    if (s->given) return;
    s->estimates = find_estimates(s->run.plan, heads);
    if (s->estimates) s->beside = beside(labels, s->estimates, heads);
    s->other.spec = s->beside;
}

/* The other spec has the problem of the first, and parameters of its own, drawn. */
static int make_other(const struct map *m, struct map_specs *s, char **labels)
{
    struct run_verb *r = &s->other;

    r->spec = opt_text(m->a, "minus");
    if (!r->spec) find_beside(s, labels);
    if (!r->spec) return EXIT_OK;
    r->a = m->a;
    r->ctx = m->ctx;
    r->p = s->run.p;
    r->p.lists = NULL;
    r->p.n_lists = 0;
    const foci_status status = foci_plan_create(m->ctx, r->spec, &r->p, &r->plan);
    if (status && s->beside) return EXIT_OK; /* these modifiers are not of softmax */
    if (status) return library_error(m->a, m->ctx, status, r->spec);
    r->params = need((size_t)foci_plan_param_floats(r->plan), sizeof *r->params);
    foci_params_init(r->plan, r->p.seed, r->params);
    return EXIT_OK;
}

static void free_run(struct run_verb *r)
{
    array_free(&r->words);
    free(r->params);
    free(r->dparams);
    free(r->given);
    run_lists_free(r);
    foci_plan_free(r->plan);
}

/*
 * Weights
 */

static float *make_data(size_t n, bool random, uint64_t seed)
{
    if (random) return bench_draw(FOCI_F32, n, seed);
    float *data = need(n, sizeof *data);
    for (size_t i = 0; i < n; i++)
        data[i] = 1;
    return data;
}

static float *copy_data(const struct array *x)
{
    float *data = need((size_t)x->count, sizeof *data);
    if (x->count) memcpy(data, x->data, (size_t)x->count * sizeof *data);
    return data;
}

/* Words are there where they are read, and are those of a sentence. */
static int check_words(const struct run_verb *r, foci_io io)
{
    static const _Alignas(64) float some[16];
    char                            text[512];

    io.o = io.work = (void *)some;
    if (!foci_io_check(r->plan, &io, NULL, text, sizeof text)) return EXIT_OK;
    if (r->words.path) return failure(r->a, "%s: %s", r->spec, text);
    int32_t *const zeros = need((size_t)r->p.len_q, sizeof *zeros);
    io.words = zeros;
    const bool missing = !foci_io_check(r->plan, &io, NULL, text, sizeof text);
    free(zeros);
    if (!missing) return EXIT_OK;
    return usage_error(r->a, "--param words=FILE is missing, and %s reads words",
                       r->spec);
}

static int weigh_io(struct run_verb *r, const foci_io *io, float *weights)
{
    bool        found;
    foci_status status = FOCI_OK;
    int         code = check_words(r, *io);

    /* What is causal needs statistics; others find their own. */
    if (!code && r->p.flags & FOCI_FLAG_CAUSAL)
        code = run_calibrate(r, io, NULL, &found);
    if (!code) status = foci_ref_weights(r->plan, io, weights);
    if (code || !status) return code;
    return failure(r->a, "%s: there are no weights to draw: %s", r->spec,
                   status == FOCI_ERR_UNSUP
                       ? "its output is not one matrix times the values"
                       : foci_status_text(status));
}

static int weigh(const struct map_specs *s, struct run_verb *r, bool random,
                 float *weights)
{
    const uint64_t seed = 3 * (uint64_t)opt_int(r->a, "seed", 0);
    foci_problem   p = { FOCI_SIZED(foci_problem) };

    foci_plan_get_problem(r->plan, &p);
    const size_t rows = (size_t)p.len_q, heads = (size_t)p.heads;
    const size_t keys = (size_t)(p.len_k * p.kv_heads), dim = (size_t)p.dim_qk;
    float       *q =
        s->given ? copy_data(&s->q) : make_data(rows * heads * dim, random, seed);
    float *k = s->given ? copy_data(&s->k) : make_data(keys * dim, random, seed + 1);
    float *x = s->x.path ? copy_data(&s->x)
                         : make_data(rows * (size_t)p.dim_x, random, seed + 2);
    float *v = need(keys * (size_t)p.dim_v, sizeof *v);

    float        *o = need(rows * heads * (size_t)p.dim_v, sizeof *o);
    const foci_io io = { FOCI_SIZED(foci_io),
                         .q = q,
                         .k = k,
                         .v = v,
                         .x = x,
                         .o = o,
                         .words = r->words.ints,
                         .params = r->params,
                         .work = need(foci_plan_work_bytes(r->plan), 1) };
    const int     code = weigh_io(r, &io, weights);
    free(q);
    free(k);
    free(x);
    free(v);
    free(o);
    free(io.work);
    return code;
}

/* Do other pairs have weights?  What is next to nothing may be nothing elsewhere. */
static bool differ(const float *x, const float *y, size_t n)
{
    const float little = 1e-9F;

    for (size_t i = 0; i < n; i++)
        if ((x[i] == 0 && fabsf(y[i]) > little) || (y[i] == 0 && fabsf(x[i]) > little))
            return true;
    return false;
}

/* Whether random data tell more than those that are all alike. */
static int find_data(const struct map *m, struct map_specs *s, size_t n)
{
    const int asked = opt_word(m->a, "data", -1);

    s->random = asked != 0;
    if (s->given || asked >= 0 || s->other.plan) return EXIT_OK;
    float *random = need(n, sizeof *random), *alike = need(n, sizeof *alike);
    int    code = weigh(s, &s->run, true, random);
    if (!code) code = weigh(s, &s->run, false, alike);
    s->random = differ(random, alike, n);
    free(random);
    free(alike);
    return code;
}

/* "relu2 - softmax", of each head. */
static void label_difference(char **labels, char **others, int64_t heads)
{
    for (int64_t h = 0; h < heads; h++) {
        const size_t bytes = strlen(labels[h]) + strlen(others[h]) + 4;
        char        *both = need(bytes, 1);
        snprintf(both, bytes, "%s - %s", labels[h], others[h]);
        free(labels[h]);
        free(others[h]);
        labels[h] = both;
    }
    free(others);
}

/* What is estimated behind each head that estimates it. */
static void interleave(struct map_attention *a, const float *others, char **labels,
                       const bool *of)
{
    const size_t  pairs = (size_t)(a->len_q * a->len_k), bytes = pairs * sizeof *others;
    const int64_t heads = a->heads;
    float        *weights = need(2 * (size_t)heads * pairs, sizeof *weights);
    char        **both = need(2 * (size_t)heads, sizeof *both);
    size_t        n = 0;

    a->numbers = need(2 * (size_t)heads, sizeof *a->numbers);
    a->beside = need(2 * (size_t)heads, sizeof *a->beside);
    for (size_t h = 0; h < (size_t)heads; h++) {
        memcpy(weights + n * pairs, a->weights + h * pairs, bytes);
        both[n] = a->labels[h];
        a->numbers[n++] = (int64_t)h;
        if (!of[h]) {
            free(labels[h]);
            continue;
        }
        memcpy(weights + n * pairs, others + h * pairs, bytes);
        both[n] = labels[h];
        a->beside[n] = true;
        a->numbers[n++] = (int64_t)h;
    }
    free(a->weights);
    free(a->labels);
    free(labels);
    a->weights = weights;
    a->labels = both;
    a->heads = (int64_t)n;
}

static int compute(struct map *m, struct map_specs *s)
{
    const foci_problem   *p = &s->run.p;
    const size_t          n = (size_t)(p->heads * p->len_q * p->len_k);
    struct map_attention *a = map_add(m, p->heads, p->len_q, p->len_k);

    a->labels = labels_of(&s->run);
    int code = make_other(m, s, a->labels);
    if (!code) code = find_data(m, s, n);
    if (!code) code = weigh(s, &s->run, s->random, a->weights);
    if (code || !s->other.plan) return code;

    float *others = need(n, sizeof *others);
    code = weigh(s, &s->other, s->random, others);
    if (!code && opt_text(m->a, "minus")) {
        m->difference = true;
        label_difference(a->labels, labels_of(&s->other), p->heads);
        for (size_t i = 0; i < n; i++)
            a->weights[i] -= others[i];
    } else if (!code) {
        interleave(a, others, labels_of(&s->other), s->estimates);
    }
    free(others);
    return code;
}

/*
 * What is told of them
 */

static void describe(struct map *m, const struct map_specs *s)
{
    enum { CAP = 1200 };
    const char *minus = opt_text(m->a, "minus");
    char       *spec = plan_text(foci_plan_spec, s->run.plan);
    char        problem[128], data[512] = "all queries and keys alike";

    foci_problem_print(&s->run.p, problem, sizeof problem);
    if (s->given)
        snprintf(data, sizeof data, "q and k of %.200s and %.200s", s->q.path,
                 s->k.path);
    else if (s->random)
        snprintf(data, sizeof data, "standard normal inputs, seed %lld",
                 (long long)opt_int(m->a, "seed", 0));
    m->title = need(CAP, 1);
    m->about = need(CAP, 1);
    snprintf(m->title, CAP, "%s%s%s", s->run.spec, minus ? " minus " : "",
             minus ? minus : "");
    snprintf(m->about, CAP, "%s: %s", problem, data);
    m->facts = json_pack("{s:s, s:s, s:s}", "spec", spec, "problem", problem, "data",
                         s->given    ? "given"
                         : s->random ? "random"
                                     : "alike");
    if (minus) json_object_set_new(m->facts, "minus", json_string(minus));
    free(spec);
}

int map_spec(struct map *m)
{
    const char      *pattern = opt_text(m->a, "pattern");
    struct map_specs s = { .run = { .a = m->a,
                                    .spec = pattern ? pattern : m->a->words[0],
                                    .ctx = m->ctx,
                                    .p = { FOCI_SIZED(foci_problem) } } };

    int code = find_problem(m, &s);
    if (!code) code = make_plan(m, &s.run);
    if (!code) code = compute(m, &s);
    if (!code) describe(m, &s);
    free_run(&s.run);
    free_run(&s.other);
    free(s.beside);
    free(s.estimates);
    array_free(&s.q);
    array_free(&s.k);
    array_free(&s.x);
    return code;
}
