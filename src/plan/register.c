/* register.c -- registration of mechanisms by a program.  They are checked here, so that
 * parsing and planning need not. */
#include <math.h>
#include <string.h>

#include "mech/mech.h"
#include "plan/plan.h"

enum { NAME_MAX_LEN = 31, SHAPE_MAX = 3 };

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(const char *s)
{
    if (!s || !is_letter(*s)) return false;
    size_t n = 1;
    while (is_letter(s[n]) || (s[n] >= '0' && s[n] <= '9'))
        n++;
    return !s[n] && n <= NAME_MAX_LEN;
}

/* Whether a spec could mean something else by it already. */
static bool is_taken(const foci_ctx *ctx, const char *name)
{
    const foci_mech_def *mech;
    const foci_mod_def  *mod;
    const char          *alias;

    for (int i = 0; (mech = foci_mechanism(ctx, i)); i++)
        if (!strcmp(mech->name, name)) return true;
    for (int i = 0; (mod = foci_modifier(ctx, i)); i++)
        if (!strcmp(mod->name, name)) return true;
    for (int i = 0; (alias = foci_alias(i, NULL)); i++)
        if (!strcmp(alias, name)) return true;
    return false;
}

/* Words between bars, none empty, without the signs that end a value. */
static int count_words(const char *words)
{
    if (strpbrk(words, " \t,()=")) return 0;
    int n = 0;
    for (const char *s = words;; s++) {
        const size_t len = strcspn(s, "|");
        if (!len) return 0;
        n++;
        s += len;
        if (!*s) return n;
    }
}

static bool is_whole(double x) { return x == floor(x) && fabs(x) <= 0x1p53; }

/* What is wrong with an argument; NULL: nothing. */
static const char *arg_fault(const foci_arg_def *a)
{
    if (a->mech) return NULL; /* its words are a spec, parsed when needed */

    double min = a->min, max = a->max;
    if (a->choices) {
        const int n = count_words(a->choices);
        if (!n) return "has malformed choices";
        min = 0;
        max = n - 1;
    }
    if (!isfinite(min) || !isfinite(max) || min > max)
        return "has bounds that hold nothing";
    if ((!a->real || a->choices) && (!is_whole(min) || !is_whole(max)))
        return "is whole with bounds that are not";
    if (isnan(a->preset)) return NULL;
    if (a->preset_word)
        return is_name(a->preset_word) ? NULL : "has a malformed preset_word";
    if (a->preset < min || a->preset > max) return "has a preset out of its bounds";
    if ((!a->real || a->choices) && !is_whole(a->preset))
        return "is whole with a preset that is not";
    return NULL;
}

static foci_status check_args(foci_ctx *ctx, const foci_mech_def *def)
{
    if (def->n_args > FOCI_MAX_ARGS || (def->n_args && !def->args))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "mechanism %s: %zu arguments, and %d at most can be had",
                        def->name, def->n_args, FOCI_MAX_ARGS);
    int n_mechs = 0;
    for (size_t i = 0; i < def->n_args; i++) {
        const foci_arg_def *a = &def->args[i];
        if (!is_name(a->name))
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "mechanism %s: argument %zu has no proper name", def->name,
                            i);
        for (size_t t = 0; t < i; t++)
            if (!strcmp(a->name, def->args[t].name))
                return ctx_fail(ctx, FOCI_ERR_ARG,
                                "mechanism %s: two arguments are called %s", def->name,
                                a->name);
        const char *fault = arg_fault(a);
        if (fault)
            return ctx_fail(ctx, FOCI_ERR_ARG, "mechanism %s: argument %s %s",
                            def->name, a->name, fault);
        n_mechs += a->mech;
    }
    if (n_mechs > 1)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "mechanism %s: %d arguments are mechanisms, and one can be had",
                        def->name, n_mechs);
    return FOCI_OK;
}

/* Biases, and the weights of sources, are vectors; the others matrices. */
static int role_dims(foci_role role)
{
    switch (role) {
    case FOCI_ROLE_B1:
    case FOCI_ROLE_B2:
    case FOCI_ROLE_B1A:
    case FOCI_ROLE_B2A:
    case FOCI_ROLE_B1B:
    case FOCI_ROLE_B2B:
    case FOCI_ROLE_MIX: return 1;
    default: return 2;
    }
}

static const char *tensor_fault(const foci_mech_def *def, const foci_tensor_def *t)
{
    if (t->n_dims < 0 || t->n_dims > SHAPE_MAX)
        return "has a number of dimensions out of 0 to 3";
    if ((t->n_dims > 0) != (t->shape != NULL))
        return "has dimensions without shape, or shape without dimensions";
    if ((unsigned)t->init > FOCI_INIT_ROWS) return "has an unknown kind of start";
    if (t->preset < 0 || (size_t)t->preset > def->n_args)
        return "takes its start from an argument that is not there";
    if (t->preset && t->init != FOCI_INIT_CONST)
        return "takes a constant start from an argument, but is drawn";
    if (!isfinite(t->value) || (t->init == FOCI_INIT_NORMAL && t->value < 0))
        return "has an impossible value";
    if (t->init == FOCI_INIT_ORTHOGONAL && t->n_dims != 2)
        return "is orthogonal without being a matrix";
    if (t->init == FOCI_INIT_ROWS && t->n_dims != 2)
        return "is rows of features without being a matrix";
    if (t->by_head && t->init != FOCI_INIT_CONST)
        return "has a constant for each head, but is drawn";
    if (t->init == FOCI_INIT_SINUSOID && t->n_dims < 1)
        return "is a row of sines without being a row";
    if ((unsigned)t->role > FOCI_ROLE_MIX) return "has an unknown role";
    if (t->role != FOCI_ROLE_NONE && t->n_dims != role_dims(t->role))
        return "has a role of another number of dimensions";
    if (t->by_rounds && t->n_dims < 1) return "is drawn by rounds without having any";
    if (t->keep != FOCI_KEEP_FROZEN && t->keep != FOCI_KEEP_TRAINED &&
        t->keep != FOCI_KEEP_MOVED)
        return "is neither frozen, trained nor moved";
    return NULL;
}

static foci_status check_tensors(foci_ctx *ctx, const foci_mech_def *def)
{
    if (def->n_tensors > FOCI_MAX_TENSORS || (def->n_tensors && !def->tensors))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "mechanism %s: %zu tensors, and %d at most can be had",
                        def->name, def->n_tensors, FOCI_MAX_TENSORS);
    for (size_t i = 0; i < def->n_tensors; i++) {
        const foci_tensor_def *t = &def->tensors[i];
        if (!is_name(t->name))
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "mechanism %s: tensor %zu has no proper name", def->name, i);
        for (size_t u = 0; u < i; u++)
            if (!strcmp(t->name, def->tensors[u].name))
                return ctx_fail(ctx, FOCI_ERR_ARG,
                                "mechanism %s: two tensors are called %s", def->name,
                                t->name);
        const char *fault = tensor_fault(def, t);
        if (fault)
            return ctx_fail(ctx, FOCI_ERR_ARG, "mechanism %s: tensor %s %s", def->name,
                            t->name, fault);
    }
    return FOCI_OK;
}

static const char *routes_fault(const foci_mech_def *def)
{
    const unsigned all = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V | FOCI_READ_X;
    size_t         inner = 0;

    for (size_t i = 0; i < def->n_args; i++)
        inner += def->args[i].mech;
    if ((def->reads & all) != all) return "routes read q, k, v and x";
    if (!def->routes || !inner)
        return "routes need their number and an inner mechanism";
    if (!def->n_tensors || def->tensors[0].n_dims != 2)
        return "routes need a matrix for their gates";
    return NULL;
}

static const char *exact_fault(const foci_mech_def *def)
{
    const unsigned qkv = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V;
    const unsigned known = qkv | FOCI_READ_X | FOCI_READ_WORDS;

    if ((!def->reads_of && (def->reads & qkv) != qkv) || (def->reads & ~known))
        return "reads must name q, k and v";
    if (def->reads_of && !def->sources) return "reads_of is of sources";
    if ((def->map == FOCI_MAP_PROJECT) != (def->width != NULL))
        return "a projection needs its width, and nothing else does";
    if (def->weigh != FOCI_WEIGH_SOFTMAX && def->weigh != FOCI_WEIGH_L2NORM &&
        def->weigh != FOCI_WEIGH_RELU2)
        return "weigh is unknown";
    if (def->stochastic && def->weigh != FOCI_WEIGH_SOFTMAX)
        return "only softmax weights sum to one";
    if (def->divisor && def->weigh != FOCI_WEIGH_RELU2)
        return "only relu2 weights are divided by a count";
    if (def->tiles && !def->mask)
        return "tiles need a mask to say which pairs they hold";
    if (def->slots && !def->slot_mask)
        return "slots need slot_mask to say who sees them";
    if (def->slot_tiles && !def->slots) return "slot_tiles without slots";
    if (def->stop && !def->mask) return "stop needs a mask";
    if (def->two_pass && (!def->slots || !def->mask))
        return "a second pass needs a mask and slots";
    if (def->list &&
        (!is_name(def->list->name) || !def->list->count || !def->list->most))
        return "its list has no proper name, count or bound";
    return NULL;
}

static const char *features_fault(const foci_mech_def *def)
{
    const unsigned qkv = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V;

    if (def->reads != qkv) return "reads must name q, k and v";
    if (!def->linear) return "the linear engine needs the features";
    if (def->mask || def->tiles || def->slots || def->order || def->list ||
        def->routes || def->two_pass || def->memory || def->stop)
        return "the linear engine knows no supports, slots, labels or routes";
    return NULL;
}

static const char *positional_fault(const foci_mech_def *def)
{
    return def->positional ? NULL : "the positional engine needs a pattern";
}

static const char *landmarks_fault(const foci_mech_def *def)
{
    return def->nystrom ? NULL : "landmarks need their number";
}

static const char *recall_fault(const foci_mech_def *def)
{
    if (!def->memformer) return "slots that are written need their number";
    if (!def->n_tensors || def->tensors[0].n_dims != 2)
        return "slots that are written need a matrix to start from";
    return NULL;
}

static const char *(*const faults[])(const foci_mech_def *) = {
    [FOCI_ENGINE_EXACT] = exact_fault,           [FOCI_ENGINE_LINEAR] = features_fault,
    [FOCI_ENGINE_POSITIONAL] = positional_fault, [FOCI_ENGINE_ROUTED] = routes_fault,
    [FOCI_ENGINE_NYSTROM] = landmarks_fault,     [FOCI_ENGINE_MEMFORMER] = recall_fault,
};

static foci_status register_check(foci_ctx *ctx, const foci_mech_def *def)
{
    if (!is_name(def->name))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "mechanism \"%.40s\": a name is a letter, then letters, digits "
                        "or _, %d at most",
                        def->name ? def->name : "", NAME_MAX_LEN);
    if (is_taken(ctx, def->name))
        return ctx_fail(ctx, FOCI_ERR_ARG, "mechanism %s: the name is taken", def->name);
    if (!def->summary)
        return ctx_fail(ctx, FOCI_ERR_ARG, "mechanism %s: a summary is wanted",
                        def->name);
    if ((unsigned)def->engine >= N_ELEMENTS(faults))
        return ctx_fail(ctx, FOCI_ERR_ARG, "mechanism %s: its engine is unknown",
                        def->name);
    const char *fault = faults[def->engine](def);
    if (fault) return ctx_fail(ctx, FOCI_ERR_ARG, "mechanism %s: %s", def->name, fault);
    TRY(check_args(ctx, def));
    return check_tensors(ctx, def);
}

foci_status foci_mechanism_register(foci_ctx *ctx, const foci_mech_def *def)
{
    foci_mech_def whole;

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "foci_mechanism_register: the context is NULL");
    TRY(sized_in(ctx, "foci_mech_def", &whole, def, sizeof whole));
    TRY(register_check(ctx, &whole));

    const size_t    n = (size_t)ctx->n_own;
    foci_mech_def  *copy = ctx_alloc(ctx, 1, sizeof *copy);
    foci_mech_def **own = ctx_alloc(ctx, n + 1, sizeof *own);
    if (!copy || !own) {
        ctx_free(ctx, copy, 1, sizeof *copy);
        ctx_free(ctx, own, n + 1, sizeof *own);
        return FOCI_ERR_MEMORY;
    }
    *copy = whole;
    if (n) memcpy(own, ctx->own, n * sizeof *own);
    own[n] = copy;
    ctx_free(ctx, ctx->own, n, sizeof *own);
    ctx->own = own;
    ctx->n_own++;
    return FOCI_OK;
}
