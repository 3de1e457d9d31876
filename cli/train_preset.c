/* train_preset.c -- what a generator brings along for `foci train`: the kind of its model and,
 * for options that are not given, settings that it is known to be learned with.
 *
 * A preset is a text of options (foci_task_info).  The command line becomes
 *
 *     KIND  options of the preset  options given  --task TASK
 *
 * where the last of an option counts.  Options that end training come as a
 * family, and those of batches: one of it that is given takes the place of all the preset's.
 * A --config takes the place of the whole preset.  Nobody behind this file knows presets:
 * train.json has the whole line, and --resume goes by it.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/train.h"

/* Options of which one that is given stands for all. */
static const char *const families[][4] = {
    { "steps", "epochs", "tokens", "time-limit" },
    { "batch", "batch-tokens" },
};

static bool is_given(const struct args *a, const char *name)
{
    for (int i = 0; i < a->n_given; i++)
        if (!strcmp(a->given[i].option->name, name)) return true;
    return false;
}

/* Whether an option is given, or another one of its family. */
static bool is_settled(const struct args *a, const char *name)
{
    if (is_given(a, name)) return true;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        bool member = false, settled = false;
        for (int i = 0; i < 4 && families[f][i]; i++) {
            member = member || !strcmp(families[f][i], name);
            settled = settled || is_given(a, families[f][i]);
        }
        if (member && settled) return true;
    }
    return false;
}

/* The next word of *text, in place; words with blanks are in double quotes.  NULL: none. */
static char *next_word(char **text)
{
    char *word = *text + strspn(*text, " ");
    char *end;

    if (!*word) return NULL;
    if (*word == '"') {
        end = strchr(++word, '"');
    } else {
        end = word + strcspn(word, " ");
    }
    *text = end && *end ? end + 1 : word + strlen(word);
    if (end) *end = '\0';
    return word;
}

static void push(struct train_line *l, const char *word)
{
    l->argv[l->n++] = (char *)word;
}

/* The options of a preset that are not settled; *task is its own, where it has one. */
static void push_preset(const struct args *a, struct train_line *l, const char **task)
{
    char *rest = l->preset, *word = next_word(&rest);

    while (word) {
        char      *value = next_word(&rest);
        const bool flag = !value || !strncmp(value, "--", 2);
        if (!strcmp(word, "--task")) {
            *task = value;
        } else if (!is_settled(a, word + 2)) {
            push(l, word);
            if (!flag) push(l, value);
        }
        word = flag ? value : next_word(&rest);
    }
}

static void push_given(const struct args *a, struct train_line *l)
{
    for (int i = 0; i < a->n_given; i++) {
        const struct given *g = &a->given[i];
        if (!strcmp(g->option->name, "preset") || !strcmp(g->option->name, "task"))
            continue;
        const size_t n = strlen(g->option->name) + (g->text ? strlen(g->text) : 0) + 4;
        char        *word = need(n, 1);
        snprintf(word, n, "--%s%s%s", g->option->name, g->text ? "=" : "",
                 g->text ? g->text : "");
        l->words[l->n_words++] = word;
        push(l, word);
    }
    if (a->json) push(l, "--json");
    if (a->quiet) push(l, "--quiet");
}

/* What is known of a generator: of its name, and of the examples that these arguments give. */
static int look_at(const struct args *a, const char *task, foci_task_info *info,
                   foci_data_kind *kind)
{
    foci_ctx               *ctx = open_ctx(a, 1);
    foci_data              *d = NULL;
    foci_data_info          data = { FOCI_SIZED(foci_data_info) };
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = task, .batch = 1, .examples = 1 };
    char                    name[512];
    int                     code = EXIT_OK;

    if (!ctx) return EXIT_FAILED;
    const foci_status status = foci_data_open(ctx, &o, &d);
    if (status) {
        code = library_error(a, ctx, status, NULL);
    } else {
        (void)foci_data_task(d, name, sizeof name);
        (void)task_find(name, info);
        (void)foci_data_get_info(d, &data);
        *kind = data.kind;
    }
    foci_data_free(d);
    foci_ctx_free(ctx);
    return code;
}

static const char *word_of(foci_data_kind kind)
{
    switch (kind) {
    case FOCI_DATA_MLM: return "mlm";
    case FOCI_DATA_TRANSLATE: return "translate";
    case FOCI_DATA_CLASSIFY: return "classify";
    case FOCI_DATA_LM:
    case FOCI_DATA_IMAGES:
    case FOCI_DATA_TASK: break;
    }
    return "lm";
}

static char *copy_of(const char *text)
{
    char *copy = need(strlen(text) + 1, 1);
    return strcpy(copy, text);
}

/* Say what was added: words 1 to n of the line, and a task of the preset's own. */
static void say_preset(const struct args *a, const struct train_line *l, int n,
                       const char *own, const char *name, const char *which)
{
    char text[2000] = "";

    if (own) snprintf(text, sizeof text, " --task \"%s\"", own);
    for (int i = 1; i < n && strlen(text) + strlen(l->argv[i]) + 2 < sizeof text; i++)
        sprintf(text + strlen(text), " %s", l->argv[i]);
    if (*text)
        note(a, "%s of %s:%s (--preset none for none)",
             strcmp(which, "cpu") ? "published setting" : "preset", name, text);
}

int train_line_make(const struct args *a, struct train_line *l)
{
    static const char *const presets[] = { "cpu", "published", "none" };
    const char              *task = opt_text(a, "task"), *own = NULL;
    const char *which = presets[opt_word(a, "preset", is_given(a, "config") ? 2 : 0)];
    foci_task_info info = { FOCI_SIZED(foci_task_info) };
    foci_data_kind kind = FOCI_DATA_LM;

    *l = (struct train_line){ 0 };
    const int code = look_at(a, task, &info, &kind);
    if (code) return code;
    const char *preset = !strcmp(which, "cpu")         ? info.preset
                         : !strcmp(which, "published") ? info.published
                                                       : NULL;
    if (!preset && is_given(a, "preset") && strcmp(which, "none") != 0)
        note(a, "%s has no %s setting", info.name, which);
    l->preset = copy_of(preset ? preset : "");
    l->argv = need(strlen(l->preset) + 2 * (size_t)a->n_given + 8, sizeof *l->argv);
    l->words = need((size_t)a->n_given + 1, sizeof *l->words);
    push(l, NULL); /* the kind */
    push_preset(a, l, &own);
    const int n_preset = l->n;
    push_given(a, l);
    if (strchr(task, '(')) own = NULL;
    if (own) task = own;
    if (look_at(a, task, &info, &kind)) return EXIT_FAILED;
    push(l, "--task");
    push(l, task);
    l->argv[0] = (char *)(a->n_words ? a->words[0] : word_of(kind));
    say_preset(a, l, n_preset, own, info.name, which);
    return EXIT_OK;
}

void train_line_free(struct train_line *l)
{
    for (int i = 0; i < l->n_words; i++)
        free(l->words[i]);
    free(l->words);
    free(l->argv);
    free(l->preset);
}
