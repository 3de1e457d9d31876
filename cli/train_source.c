/* train_source.c -- what a model is trained, validated and tested by. */
#include <string.h>

#include "cli/train.h"

static int shipped_sources(const struct args *a, foci_model_kind task,
                           struct train_sources *s)
{
    static const char *const files[][3] = {
        [FOCI_MODEL_LM] = { "austen-pride.train.txt.gz", "austen-pride.valid.txt.gz",
                            "austen-persuasion.test.txt.gz" },
        [FOCI_MODEL_MLM] = { "austen-pride.train.txt.gz", "austen-pride.valid.txt.gz",
                             "austen-persuasion.test.txt.gz" },
        [FOCI_MODEL_TRANSLATE] = { "office-de-en.train.tsv.gz",
                                   "office-de-en.valid.tsv.gz",
                                   "office-de-en.test.tsv.gz" },
    };

    s->shipped = true;
    for (int i = 0; i < 3; i++) {
        s->from[i].split = (foci_data_split)i;
        s->from[i].reverse = opt_flag(a, "reverse");
        if (task == FOCI_MODEL_CLASSIFY)
            s->from[i].task = "listops(depth=3, arguments=3, least=4, most=60)";
        else if (!(s->from[i].text = shipped_path(a, files[task][i], s->paths[i])))
            return EXIT_FAILED;
    }
    return EXIT_OK;
}

/* Without --valid the last tenth is kept apart, but of generators, which have a split of
 * their own. */
int train_sources_find(const struct args *a, foci_model_kind task,
                       struct train_sources *s)
{
    const char *valid = opt_text(a, "valid");

    *s = (struct train_sources){ 0 };
    if (!source_given(a)) return shipped_sources(a, task, s);
    if (opt_text(a, "source") && !opt_text(a, "target"))
        return usage_error(a,
                           "--source needs --target, or give both as --data FILE.tsv");
    for (int i = 0; i < 3; i++)
        s->from[i] = source_of(a, (foci_data_split)i);
    if (s->from[0].task) return EXIT_OK;
    s->from[FOCI_DATA_SPLIT_TEST].text = NULL;
    struct train_source *kept = &s->from[FOCI_DATA_SPLIT_VALID];
    if (valid) {
        kept->text = valid;
        kept->target = opt_text(a, "valid-target");
    } else {
        s->from[0].end = kept->begin = 0.9;
        kept->end = 1;
    }
    return EXIT_OK;
}

bool train_asks_memory(const struct args *a)
{
    const char *spec = opt_text(a, "attention");
    return spec && strstr(spec, "xl");
}
