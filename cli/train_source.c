/* train_source.c -- what a model is trained, validated and tested by. */
#include <ctype.h>
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

/* Whether `xl` is a mechanism of a spec, and not a part of another name. */
static bool names_xl(const char *spec)
{
    for (const char *p = spec; p && (p = strstr(p, "xl")); p += 2)
        if ((p == spec || !isalpha((unsigned char)p[-1])) &&
            !isalnum((unsigned char)p[2]))
            return true;
    return false;
}

bool train_asks_memory(const foci_model_config *c)
{
    bool asks = names_xl(c->attention) || names_xl(c->encoder_attention) ||
                names_xl(c->decoder_attention);

    for (int64_t i = 0; i < c->n_blocks; i++)
        asks |= names_xl(c->blocks[i].attention);
    return asks;
}
