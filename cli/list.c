/* list.c -- foci list: mechanisms, modifiers and aliases, from their descriptors. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "foci/mechanism.h"

static const char *const engines[] = {
    [FOCI_ENGINE_EXACT] = "exact",           [FOCI_ENGINE_LINEAR] = "linear",
    [FOCI_ENGINE_POSITIONAL] = "positional", [FOCI_ENGINE_ROUTED] = "routed",
    [FOCI_ENGINE_NYSTROM] = "nystrom",       [FOCI_ENGINE_MEMFORMER] = "memformer",
};

static const char *const keeps[] = {
    [FOCI_KEEP_FROZEN] = "frozen",
    [FOCI_KEEP_TRAINED] = "trained",
    [FOCI_KEEP_MOVED] = "moved",
};

static const struct {
    unsigned    bit;
    const char *name;
} inputs[] = {
    { FOCI_READ_Q, "q" }, { FOCI_READ_K, "k" },         { FOCI_READ_V, "v" },
    { FOCI_READ_X, "x" }, { FOCI_READ_WORDS, "words" }, { 0, NULL },
};

/* What mechanisms and modifiers have in common. */
struct entry {
    const char            *kind, *name, *summary, *formula, *source;
    const foci_arg_def    *args;
    size_t                 n_args;
    const foci_tensor_def *tensors;
    size_t                 n_tensors;
    const foci_mech_def   *mech; /* NULL: a modifier */
};

static struct entry of_mechanism(const foci_mech_def *d)
{
    return (struct entry){ "mechanism", d->name,   d->summary, d->formula,   d->source,
                           d->args,     d->n_args, d->tensors, d->n_tensors, d };
}

static struct entry of_modifier(const foci_mod_def *d)
{
    return (struct entry){ "modifier", d->name,   d->summary, d->formula,   d->source,
                           d->args,    d->n_args, d->tensors, d->n_tensors, NULL };
}

/* Text in a descriptor that a program may have left out. */
static const char *or_empty(const char *text) { return text ? text : ""; }

/* Which keys a query sees. */
enum { SEES_TEXT = 96 };

static const char *sees_text(const foci_mech_def *d, char text[SEES_TEXT])
{
    const struct {
        bool        has;
        const char *what;
    } parts[] = {
        { d->mask, "keys by their position" },
        { d->order, "keys with its label" },
        { d->slots, "slots that stand for others" },
    };

    if (d->engine == FOCI_ENGINE_ROUTED) return "what the inner mechanism sees";
    text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].has)
            snprintf(text + strlen(text), SEES_TEXT - strlen(text), "%s%s",
                     *text ? ", " : "", parts[i].what);
    return *text ? text : "all keys";
}

/* Why it has no decoding states; NULL: it has.  What cannot be planned without further
 * arguments is taken to have them. */
static const char *no_step(foci_ctx *ctx, const foci_mech_def *d)
{
    static const int64_t entries[64];
    foci_list_want       want = { FOCI_SIZED(foci_list_want) };
    foci_plan           *plan = NULL;
    foci_pool           *pool = NULL;
    foci_problem         p = { FOCI_SIZED(foci_problem),
                               .flags = FOCI_FLAG_CAUSAL,
                               .batch = 1,
                               .heads = 1,
                               .len_q = 2,
                               .len_k = 2,
                               .dim_qk = 2,
                               .dim_x = 2 };

    if (d->no_causal) return d->no_causal;
    if (foci_list_wanted(ctx, d->name, &p, 0, &want)) return NULL;
    const foci_list list = { want.name, entries, want.count };
    if (want.count > 0 && want.count <= (int64_t)(sizeof entries / sizeof *entries)) {
        p.lists = &list;
        p.n_lists = 1;
    }
    foci_status status = foci_plan_create(ctx, d->name, &p, &plan);
    if (status == FOCI_OK) {
        status = foci_pool_create(plan, 1, &pool);
        foci_pool_free(pool);
        foci_plan_free(plan);
        if (status == FOCI_ERR_UNSUP) return foci_errmsg(ctx);
    }
    if (status == FOCI_ERR_MEMORY) no_memory(d->name);
    return NULL;
}

/*
 * JSON
 */

/* JSON knows no infinity: a bound that is none is null. */
static json_t *json_number(double x)
{
    if (!isfinite(x)) return json_null();
    return x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x)
                                             : json_real(x);
}

static json_t *json_args(const struct entry *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_args; i++) {
        const foci_arg_def *d = &e->args[i];
        json_t             *o = json_pack(
                        "{s:s, s:s, s:o, s:o, s:o, s:b}", "name", d->name, "help",
                        or_empty(d->help), "default",
            d->preset_word ? json_string(d->preset_word) : json_number(d->preset),
                        "min", json_number(d->min), "max", json_number(d->max), "real", d->real);
        if (d->choices)
            json_object_set_new(o, d->mech ? "mechanism" : "words",
                                json_string(d->choices));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *json_tensors(const struct entry *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_tensors; i++) {
        const foci_tensor_def *d = &e->tensors[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:s}", "name", d->name,
                                              "help", or_empty(d->help), "axes",
                                              d->n_dims, "keep", keeps[d->keep]));
    }
    return list;
}

/* true, or the reason why not. */
static json_t *json_can(const char *why_not)
{
    return why_not ? json_string(why_not) : json_true();
}

static json_t *json_lists(const foci_mech_def *d)
{
    json_t *list = json_array();
    if (d->list)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", d->list->name,
                                              "help", or_empty(d->list->help)));
    return list;
}

/* What some value of an argument makes it read beside what it always does: each that is a
 * word or a switch is tried, the others at their defaults. */
static unsigned may_read(const foci_mech_def *d)
{
    foci_mech m = { .def = d };
    unsigned  all = 0;

    for (size_t i = 0; i < d->n_args; i++)
        m.arg[i] = isnan(d->args[i].preset) ? d->args[i].min : d->args[i].preset;
    for (size_t i = 0; d->reads_of && i < d->n_args; i++) {
        const double preset = m.arg[i];
        const char  *more = d->args[i].choices ? d->args[i].choices : "0|1";
        for (m.arg[i] = 0; more; m.arg[i]++) {
            all |= d->reads_of(&m);
            more = strchr(more, '|');
            if (more) more++;
        }
        m.arg[i] = preset;
    }
    return all & ~d->reads;
}

static json_t *json_reads(unsigned reads)
{
    json_t *list = json_array();
    for (int i = 0; inputs[i].name; i++)
        if (reads & inputs[i].bit)
            json_array_append_new(list, json_string(inputs[i].name));
    return list;
}

static json_t *json_entry(foci_ctx *ctx, const struct entry *e)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "kind", e->kind,
                          "name", e->name, "summary", or_empty(e->summary), "formula",
                          or_empty(e->formula), "source", or_empty(e->source),
                          "arguments", json_args(e), "tensors", json_tensors(e));
    if (!e->mech) return o;

    char text[SEES_TEXT];
    json_object_set_new(o, "cost", json_string(or_empty(e->mech->cost)));
    json_object_set_new(o, "engine", json_string(engines[e->mech->engine]));
    json_object_set_new(o, "sees", json_string(sees_text(e->mech, text)));
    json_object_set_new(o, "lists", json_lists(e->mech));
    json_object_set_new(o, "causal", json_can(e->mech->no_causal));
    json_object_set_new(o, "step", json_can(no_step(ctx, e->mech)));
    json_object_set_new(o, "cross", json_can(e->mech->no_cross));
    json_object_set_new(o, "backward", json_true());
    json_object_set_new(o, "reads", json_reads(e->mech->reads));
    json_object_set_new(o, "may_read", json_reads(may_read(e->mech)));
    return o;
}

static json_t *json_all(foci_ctx *ctx)
{
    json_t *mechs = json_array(), *mods = json_array(), *aliases = json_object();
    const foci_mech_def *mech;
    const foci_mod_def  *mod;
    const char          *alias, *meaning;

    for (int i = 0; (mech = foci_mechanism(ctx, i)); i++) {
        const struct entry e = of_mechanism(mech);
        json_array_append_new(mechs, json_entry(ctx, &e));
    }
    for (int i = 0; (mod = foci_modifier(ctx, i)); i++) {
        const struct entry e = of_modifier(mod);
        json_array_append_new(mods, json_entry(ctx, &e));
    }
    for (int i = 0; (alias = foci_alias(i, &meaning)); i++)
        json_object_set_new(aliases, alias, json_string(meaning));
    return json_pack("{s:o, s:o, s:o}", "mechanisms", mechs, "modifiers", mods,
                     "aliases", aliases);
}

/*
 * Text
 */

/* "q k v" */
static const char *reads_text(unsigned reads, char text[32])
{
    text[0] = '\0';
    for (int i = 0; inputs[i].name; i++)
        if (reads & inputs[i].bit)
            snprintf(text + strlen(text), 32 - strlen(text), "%s%s", *text ? " " : "",
                     inputs[i].name);
    return text;
}

static void print_mechanisms(foci_ctx *ctx)
{
    static const char *const heads[] = { "mechanism", "causal", "step",    "cross",
                                         "backward",  "reads",  "summary", "cost" };
    const foci_mech_def     *d;
    char                     reads[32];

    struct output_table *t = table_headed("llllllll");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; (d = foci_mechanism(ctx, i)); i++) {
        table_cell(t, "%s", d->name);
        table_cell(t, "%s", d->no_causal ? "no" : "yes");
        table_cell(t, "%s", no_step(ctx, d) ? "no" : "yes");
        table_cell(t, "%s", d->no_cross ? "no" : "yes");
        table_cell(t, "yes");
        table_cell(t, "%s", reads_text(d->reads, reads));
        table_cell(t, "%s", or_empty(d->summary));
        table_cell(t, "%s", or_empty(d->cost));
    }
    table_print(t, stdout);
    table_free(t);
}

static void print_rest(foci_ctx *ctx)
{
    const foci_mod_def *d;
    const char         *alias, *meaning;

    struct output_table *t = table_headed("ll");
    table_cell(t, "modifier");
    table_cell(t, "summary");
    for (int i = 0; (d = foci_modifier(ctx, i)); i++) {
        table_cell(t, "%s", d->name);
        table_cell(t, "%s", or_empty(d->summary));
    }
    putchar('\n');
    table_print(t, stdout);
    table_free(t);

    if (!foci_alias(0, &meaning)) return;
    t = table_headed("ll");
    table_cell(t, "alias");
    table_cell(t, "meaning");
    for (int i = 0; (alias = foci_alias(i, &meaning)); i++) {
        table_cell(t, "%s", alias);
        table_cell(t, "%s", meaning);
    }
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

/* The word of "a|b|c" at an index. */
static const char *word_at(const char *words, int index, int *len)
{
    for (; index > 0 && strchr(words, '|'); index--)
        words = strchr(words, '|') + 1;
    *len = (int)strcspn(words, "|");
    return words;
}

static void print_args(const struct entry *e)
{
    struct output_table *t = table_headed("lrll");
    table_cell(t, "  argument");
    table_cell(t, "default");
    table_cell(t, "accepted");
    table_cell(t, "help");
    for (size_t i = 0; i < e->n_args; i++) {
        const foci_arg_def *d = &e->args[i];
        table_cell(t, "  %s", d->name);
        if (d->mech) {
            table_cell(t, "%s", d->choices);
            table_cell(t, "a mechanism and its modifiers");
        } else if (d->choices) {
            int         len;
            const char *word = word_at(d->choices, (int)d->preset, &len);
            table_cell(t, "%.*s", len, word);
            table_cell(t, "%s", d->choices);
        } else {
            if (d->preset_word)
                table_cell(t, "%s", d->preset_word);
            else if (isnan(d->preset))
                table_cell(t, "required");
            else
                table_cell(t, "%.16g", d->preset);
            table_cell(t, "%.16g to %.16g%s", d->min, d->max, d->real ? "" : ", whole");
        }
        table_cell(t, "%s", or_empty(d->help));
    }
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

static void print_tensors(const struct entry *e)
{
    struct output_table *t = table_headed("llll");
    table_cell(t, "  tensor");
    table_cell(t, "of a head");
    table_cell(t, "kept");
    table_cell(t, "help");
    for (size_t i = 0; i < e->n_tensors; i++) {
        const foci_tensor_def *d = &e->tensors[i];
        table_cell(t, "  %s", d->name);
        if (d->n_dims)
            table_cell(t, d->n_dims == 1 ? "%d axis" : "%d axes", d->n_dims);
        else
            table_cell(t, "a number");
        table_cell(t, "%s", keeps[d->keep]);
        table_cell(t, "%s", or_empty(d->help));
    }
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

static void print_list(const foci_list_def *d)
{
    struct output_table *t = table_headed("ll");
    table_cell(t, "  list");
    table_cell(t, "help");
    table_cell(t, "  %s", d->name);
    table_cell(t, "%s", or_empty(d->help));
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

static void field(struct output_table *t, const char *name, const char *text)
{
    if (!text || !*text) return;
    table_cell(t, "  %s", name);
    table_cell(t, "%s", text);
}

static void print_entry(foci_ctx *ctx, const struct entry *e)
{
    char                 reads[32], more[32], sees[SEES_TEXT], why[512];
    struct output_table *t = table_create("ll");

    printf("%s, a %s: %s\n\n", e->name, e->kind, or_empty(e->summary));
    field(t, "formula", e->formula);
    field(t, "source", e->source);
    if (e->mech) {
        field(t, "cost", e->mech->cost);
        field(t, "engine", engines[e->mech->engine]);
        reads_text(e->mech->reads, reads);
        snprintf(why, sizeof why, "%s; by its arguments also %s", reads,
                 reads_text(may_read(e->mech), more));
        field(t, "reads", *more ? why : reads);
        field(t, "sees", sees_text(e->mech, sees));
        snprintf(why, sizeof why, "no: %s", or_empty(e->mech->no_causal));
        field(t, "causal", e->mech->no_causal ? why : "yes");
        const char *step = no_step(ctx, e->mech);
        snprintf(why, sizeof why, "no: %s", or_empty(step));
        field(t, "step", step ? why : "yes");
        snprintf(why, sizeof why, "no: %s", or_empty(e->mech->no_cross));
        field(t, "cross", e->mech->no_cross ? why : "yes");
        field(t, "backward", "yes");
    }
    table_print(t, stdout);
    table_free(t);
    if (e->n_args) print_args(e);
    if (e->n_tensors) print_tensors(e);
    if (e->mech && e->mech->list) print_list(e->mech->list);
}

/*
 * The verb
 */

static bool find_entry(const foci_ctx *ctx, const char *name, struct entry *e)
{
    const foci_mech_def *mech;
    const foci_mod_def  *mod;

    for (int i = 0; (mech = foci_mechanism(ctx, i)); i++) {
        if (strcmp(mech->name, name) != 0) continue;
        *e = of_mechanism(mech);
        return true;
    }
    for (int i = 0; (mod = foci_modifier(ctx, i)); i++) {
        if (strcmp(mod->name, name) != 0) continue;
        *e = of_modifier(mod);
        return true;
    }
    return false;
}

static int no_such_name(const struct args *a, const foci_ctx *ctx, const char *name)
{
    char hint[240];

    foci_name_hint(ctx, name, hint, sizeof hint);
    return usage_error(a, "no mechanism, modifier or alias '%s'%s; see foci list", name,
                       hint);
}

static int list_one(const struct args *a, foci_ctx *ctx, const char *name)
{
    struct entry e;
    const char  *alias, *meaning;

    if (find_entry(ctx, name, &e)) {
        if (a->json) return print_json(a, json_entry(ctx, &e));
        print_entry(ctx, &e);
        return EXIT_OK;
    }
    for (int i = 0; (alias = foci_alias(i, &meaning)); i++) {
        if (strcmp(alias, name) != 0) continue;
        if (a->json)
            return print_json(a, json_pack("{s:s, s:s, s:s}", "kind", "alias", "name",
                                           alias, "meaning", meaning));
        printf("%s, an alias: %s\n", alias, meaning);
        return EXIT_OK;
    }
    return no_such_name(a, ctx, name);
}

static int run(const struct args *a)
{
    foci_ctx *ctx = open_ctx(a, 0);
    int       code = EXIT_OK;

    if (!ctx) return EXIT_FAILED;
    if (a->n_words) {
        code = list_one(a, ctx, a->words[0]);
    } else if (a->json) {
        code = print_json(a, json_all(ctx));
    } else {
        print_mechanisms(ctx);
        print_rest(ctx);
    }
    foci_ctx_free(ctx);
    return code;
}

static const char *const examples[] = {
    "foci list",
    "foci list softmax",
    "foci list --json",
    NULL,
};

const struct verb verb_list = {
    .name = "list",
    .run = run,
    .summary = "mechanisms, modifiers and aliases; with NAME all about one",
    .usage = "[NAME]",
    .max_words = 1,
    .examples = examples,
};
