/* papers.c -- names of the literature lead to specs that can be planned, misspelt ones to the
 * nearest, and names that are far off to nothing. */
#include <stdio.h>

#include "foci/mechanism.h"
#include "test.h"

enum { TEXT = 300 };

static const struct {
    const char *name, *spec;
} papers[] = {
#define SAME(name, spec)      { name, spec },
#define LIKE(name, spec, how) { name, spec },
#define NONE(name, why)       { name, NULL },
#include "plan/papers.def"
#undef SAME
#undef LIKE
#undef NONE
};

static bool plans(foci_ctx *ctx, const char *spec)
{
    const uint32_t flags[] = { FOCI_FLAG_CAUSAL, 0 };
    foci_plan     *plan = NULL;

    for (int i = 0; i < 2 && !plan; i++) {
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .flags = flags[i],
                                 .heads = 2,
                                 .len_q = 128,
                                 .dim_qk = 16,
                                 .dim_x = 32 };
        const int64_t      layout[64] = { 1 };
        const foci_list    list = { "layout", layout, 4 };
        foci_problem       with = p;
        if (foci_plan_create(ctx, spec, &p, &plan) == FOCI_OK) break;
        with.lists = &list;
        with.n_lists = 1;
        foci_plan_create(ctx, spec, &with, &plan);
    }
    foci_plan_free(plan);
    return plan != NULL;
}

/* A name of ours would never be looked up, and a spec that is none would mislead. */
static void they_lead_to_specs(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++) {
        char modifier[64], hint[TEXT];
        assert_false(plans(ctx, papers[i].name));
        snprintf(modifier, sizeof modifier, "softmax %s", papers[i].name);
        assert_false(plans(ctx, modifier));
        assert_true(foci_name_hint(ctx, papers[i].name, hint, sizeof hint) > 2);
        if (!papers[i].spec) continue;
        assert_non_null(strstr(hint, papers[i].spec));
        snprintf(modifier, sizeof modifier, "softmax %s", papers[i].spec);
        if (!plans(ctx, papers[i].spec) && !plans(ctx, modifier))
            fail_msg("%s: %s", papers[i].spec, foci_errmsg(ctx));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(papers[i].name, papers[j].name);
    }
    foci_ctx_free(ctx);
}

static void hints_say(void **state)
{
    static const struct {
        const char *word, *hint;
    } cases[] = {
        { "reformer", "; it is \"lsh\" here" },
        { "Reformer", "; it is \"lsh\" here" },
        { "longformer", "; it is \"global\" here" },
        { "flash", "; it is \"softmax\" here" },
        { "FlashAttention", "; it is \"softmax\" here" },
        { "flash_attention_2", "; it is \"softmax\" here" },
        { "FLASH__attn", "; it is \"softmax\" here" },
        { "squaredReLU", "; it is \"relu2\" here" },
        { "mamba",
          "; the nearest is \"retention\", which has a state that fades too, but "
          "decays that do not depend on the token" },
        { "fnet", "; nothing here mixes by a Fourier transform" },
        { "reformr", "; the nearest is \"reformer\", which is \"lsh\" here" },
        { "sofmax", "; the nearest is \"softmax\"" },
        { "qk_norm", "; the nearest is \"qknorm\"" },
        { "perf", "; the nearest is \"performer\"" },
        { "linear_attention", "; the nearest is \"linear\"" },
        { "xyzzy", "" },
        { "transistor", "" },
        { "o", "" },
        { "", "" },
        { "_", "" },
        { "1234567", "" },
        { "\xff\xfe", "" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);
    char      hint[TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int n = foci_name_hint(ctx, cases[i].word, hint, sizeof hint);
        assert_string_equal(hint, cases[i].hint);
        assert_int_equal(n, strlen(hint));
    }
    assert_int_equal(foci_name_hint(ctx, NULL, hint, sizeof hint), 0);
    assert_int_equal(foci_name_hint(ctx, "reformer", hint, 5), 18);
    assert_string_equal(hint, "; it");
    foci_ctx_free(ctx);
}

static void distances(void **state)
{
    static const struct {
        const char *word, *name;
        int         distance;
    } cases[] = {
        { "softmax", "softmax", 0 },
        { "SoftMax", "softmax", 0 },
        { "sofmax", "softmax", 1 },
        { "sotfmax", "softmax", 2 },
        { "soft", "softmax", 1 },
        { "so", "softmax", -1 },
        { "outputting", "output", 4 },
        { "maximum", "max", -1 },
        { "q", "k", -1 },
        { "", "k", -1 },
        { "query", "q", -1 },
        { "kitten", "sitting", 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(foci_name_distance(cases[i].word, cases[i].name),
                         cases[i].distance);
    assert_int_equal(foci_name_distance(NULL, "k"), -1);
    assert_int_equal(foci_name_distance("k", NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_lead_to_specs),
        cmocka_unit_test(hints_say),
        cmocka_unit_test(distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
