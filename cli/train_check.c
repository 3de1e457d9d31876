/* train_check.c -- options of `foci train` that would have no effect, refused. */
#include <string.h>

#include "cli/train.h"

enum {
    LM = 1 << FOCI_MODEL_LM,
    MLM = 1 << FOCI_MODEL_MLM,
    TRANSLATE = 1 << FOCI_MODEL_TRANSLATE,
    CLASSIFY = 1 << FOCI_MODEL_CLASSIFY,
};

static const char *const tasks[] = { "lm", "mlm", "translate", "classify" };

/* Options that some tasks have no use for. */
static const struct {
    const char *name;
    unsigned    tasks;
} some[] = {
    { "source", TRANSLATE },
    { "target", TRANSLATE },
    { "valid-target", TRANSLATE | CLASSIFY },
    { "reverse", TRANSLATE },
    { "labels", CLASSIFY },
    { "patch", CLASSIFY },
    { "pooling", CLASSIFY },
    { "documents", LM | MLM },
    { "encoder-attention", MLM | TRANSLATE | CLASSIFY },
    { "decoder-attention", LM | TRANSLATE },
    { "cross-attention", TRANSLATE },
    { "decoder-layers", TRANSLATE },
    { "encoder-heads", TRANSLATE },
};

/* Options that need one of others. */
static const struct {
    const char *name, *needs[3], *text;
} pairs[] = {
    { "source", { "target" }, "--target, or both as --data FILE.tsv" },
    { "target", { "source" }, "--source, or both as --data FILE.tsv" },
    { "labels", { "data" }, "images, as --data FILE.npy" },
    { "valid", { "data", "source" }, "--data to train on" },
    { "valid-target", { "valid" }, "--valid" },
};

static int check_task(const struct args *a, foci_model_kind task)
{
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char known[64] = "";
        if (!opt_flag(a, some[i].name) || some[i].tasks >> task & 1) continue;
        for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++) {
            const size_t n = strlen(known);
            if (some[i].tasks >> t & 1)
                snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", tasks[t]);
        }
        return usage_error(a, "--%s is for %s; %s has no use for it", some[i].name,
                           known, tasks[task]);
    }
    return EXIT_OK;
}

static int check_pairs(const struct args *a)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        bool there = !opt_flag(a, pairs[i].name);
        for (size_t n = 0; n < 3 && pairs[i].needs[n]; n++)
            there |= opt_flag(a, pairs[i].needs[n]);
        if (!there)
            return usage_error(a, "--%s needs %s", pairs[i].name, pairs[i].text);
    }
    return EXIT_OK;
}

static int check_arrays(const struct args *a, foci_model_kind task)
{
    const char *data = opt_text(a, "data");

    if (!data || !path_is_array(data)) return EXIT_OK;
    if (task != FOCI_MODEL_CLASSIFY)
        return usage_error(a, "%s has arrays, which are for classify; %s reads text",
                           data, tasks[task]);
    if (opt_text(a, "labels") || strstr(data, ".npz")) return EXIT_OK;
    return usage_error(a, "the images of %s need their classes: --labels FILE.npy",
                       data);
}

int train_options_check(const struct args *a, foci_model_kind task)
{
    const int sources =
        opt_flag(a, "data") + opt_flag(a, "source") + opt_flag(a, "task");

    if (sources > 1)
        return usage_error(a, "examples come from one of --data, --source and --task");
    int code = check_task(a, task);
    if (!code) code = check_pairs(a);
    return code ? code : check_arrays(a, task);
}
