/* models.c -- which levels and kernels CPUs get, for CPUs that are made up. */
#include "test.h"

#include "kernels/kernels.h"

enum { UP_TO_AVX512 = 7, UP_TO_BF16 = 15, UP_TO_AMX = 31 };

static const struct cpu_model emerald = { CPU_INTEL, 6, 207 };
static const struct cpu_model zen4 = { CPU_AMD, 25, 17 };

static unsigned choose(struct cpu_model cpu, unsigned levels, int asked,
                       const char **why)
{
    const char    *all[N_LEVELS] = { NULL };
    const unsigned got = models_choose(&cpu, levels, asked, all);

    for (int l = 0; l < N_LEVELS; l++) /* a reason for what is left out, and no other */
        assert_int_equal(all[l] != NULL, (levels & ~got) >> l & 1);
    if (why) *why = all[LEVEL_BF16];
    return got;
}

static void test_bf16_is_left_out_where_it_is_slow(void **state)
{
    (void)state;
    const char *why;

    assert_int_equal(choose(emerald, UP_TO_BF16, N_LEVELS, &why), UP_TO_AVX512);
    assert_non_null(strstr(why, "slower than avx512 on Emerald Rapids"));
    const struct cpu_model sapphire = { CPU_INTEL, 6, 143 };
    assert_int_equal(choose(sapphire, UP_TO_BF16, N_LEVELS, &why), UP_TO_AVX512);
    assert_non_null(strstr(why, "Sapphire Rapids"));
    assert_int_equal(choose(zen4, UP_TO_BF16, N_LEVELS, &why), UP_TO_BF16);
}

static void test_unknown_cpus_go_by_their_vendor(void **state)
{
    (void)state;
    const struct cpu_model next = { CPU_INTEL, 19, 1 }, zen9 = { CPU_AMD, 31, 5 },
                           other = { CPU_OTHER, 6, 207 };
    const char *why;

    assert_int_equal(choose(next, UP_TO_BF16, N_LEVELS, &why), UP_TO_AVX512);
    assert_non_null(strstr(why, "was not"));
    assert_int_equal(choose(zen9, UP_TO_BF16, N_LEVELS, &why), UP_TO_BF16);
    assert_int_equal(choose(other, UP_TO_BF16, N_LEVELS, &why), UP_TO_BF16);
}

static void test_a_level_that_is_asked_for_stays(void **state)
{
    (void)state;

    assert_int_equal(choose(emerald, UP_TO_BF16, LEVEL_BF16, NULL), UP_TO_BF16);
    assert_int_equal(choose(emerald, UP_TO_BF16, LEVEL_AMX, NULL), UP_TO_AVX512);
}

static void test_other_levels_are_not_touched(void **state)
{
    (void)state;

    /* Tiles stand on the level below. */
    assert_int_equal(choose(emerald, UP_TO_AMX, N_LEVELS, NULL), UP_TO_AMX);
    assert_int_equal(choose(emerald, UP_TO_AMX, LEVEL_AMX, NULL), UP_TO_AMX);
    for (unsigned levels = 1; levels <= UP_TO_AVX512; levels = 2 * levels + 1) {
        assert_int_equal(choose(emerald, levels, N_LEVELS, NULL), levels);
        assert_int_equal(choose(zen4, levels, N_LEVELS, NULL), levels);
    }
}

static void test_decoding_by_rows(void **state)
{
    (void)state;
    struct kernels k = { .few_bf16 = 8 }, none = { .few_bf16 = 0 };

    models_tune(&zen4, &k);
    assert_int_equal(k.few_bf16, 8);
    models_tune(&emerald, &k);
    assert_int_equal(k.few_bf16, 1);
    models_tune(&emerald, &none); /* a level without such kernels */
    assert_int_equal(none.few_bf16, 0);
}

static void test_cpuid_is_decoded(void **state)
{
    (void)state;
    static const struct {
        const char      *vendor;
        uint32_t         signature;
        struct cpu_model model;
    } cpus[] = {
        { "GenuineIntel", 0x000c06f2, { CPU_INTEL, 6, 207 } },
        { "GenuineIntel", 0x000806f8, { CPU_INTEL, 6, 143 } },
        { "GenuineIntel", 0x000306c3, { CPU_INTEL, 6, 60 } },
        { "AuthenticAMD", 0x00a10f11, { CPU_AMD, 25, 17 } },
        { "AuthenticAMD", 0x00b00f21, { CPU_AMD, 26, 2 } },
        { "HygonGenuine", 0x00900f02, { CPU_OTHER, 24, 0 } },
        { "GenuineIntel", 0x00000543, { CPU_INTEL, 5, 4 } },
    };

    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        const struct cpu_model got = models_decode(cpus[i].vendor, cpus[i].signature);
        assert_int_equal(got.vendor, cpus[i].model.vendor);
        assert_int_equal(got.family, cpus[i].model.family);
        assert_int_equal(got.model, cpus[i].model.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_is_left_out_where_it_is_slow),
        cmocka_unit_test(test_unknown_cpus_go_by_their_vendor),
        cmocka_unit_test(test_a_level_that_is_asked_for_stays),
        cmocka_unit_test(test_other_levels_are_not_touched),
        cmocka_unit_test(test_decoding_by_rows),
        cmocka_unit_test(test_cpuid_is_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
