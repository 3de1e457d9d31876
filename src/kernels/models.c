/* models.c -- CPU models on which a level is slower than the one below.
 *
 * A higher level has more instructions, but they are not faster on every CPU.  Each line of
 * the table below is a CPU model with the measurement that justifies it; nothing is timed at
 * run time, so that a machine always gives the same bits.  A model that is not listed takes
 * the last line of its vendor; other vendors use the highest level.
 *
 * Pure functions: nothing here asks the machine it runs on.
 */
#include <stddef.h>
#include <string.h>

#include "kernels/kernels.h"

struct known {
    enum cpu_vendor vendor;
    int             family, first, last; /* models, of a family; family 0: any */
    bool            slow_bf16;           /* level avx512bf16 is slower than avx512 */
    int             few_bf16;            /* as in struct kernels */
    const char     *why;                 /* slow */
};

/* GFLOP/s and GB/s of two threads, N 2048 and d 64 unless said; all of it in
 * dev/kernels.md. */
static const struct known known[] = {
    /* Emerald Rapids: vdpbf16ps reaches 171 where FMA in f32 reach 356; attention forward
     * 160 and 286, backward 154 and 261, products of 2048 158 and 277.  dots_bf16 of one
     * row takes 0.24 us where dots_f32 takes 0.40, sums_bf16 of four rows 0.80 where
     * sums_f32 takes 0.48. */
    { CPU_INTEL, 6, 207, 207, true, 1,
      "slower than avx512 on Emerald Rapids, whose bf16 dot products reach half the "
      "rate of f32 multiply-adds" },
    /* Sapphire Rapids: the same core. */
    { CPU_INTEL, 6, 143, 143, true, 1,
      "slower than avx512 on Sapphire Rapids, whose bf16 dot products reach half the "
      "rate of f32 multiply-adds" },
    /* Zen 4: vdpbf16ps reaches 467 where FMA in f32 reach 233. */
    { CPU_AMD, 25, 0, 255, false, 8, NULL },
    /* By vendor.  Intel: no core is known whose dot product is as fast as its FMA. */
    { CPU_INTEL, 0, 0, 0, true, 1,
      "slower than avx512 on Intel CPUs that were measured; this one was not" },
    { CPU_AMD, 0, 0, 0, false, 8, NULL },
};

static const struct known *find(const struct cpu_model *cpu)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct known *const x = &known[i];
        const bool                model =
            cpu->family == x->family && cpu->model >= x->first && cpu->model <= x->last;
        if (cpu->vendor == x->vendor && (!x->family || model)) return x;
    }
    return NULL;
}

unsigned models_choose(const struct cpu_model *cpu, unsigned levels, int asked,
                       const char *why[N_LEVELS])
{
    const unsigned      bf16 = 1u << LEVEL_BF16;
    const struct known *x = find(cpu);

    /* Tiles need what stands on it, and leave it few products. */
    if (!x || !x->slow_bf16 || asked == LEVEL_BF16 || levels >> LEVEL_BF16 != 1)
        return levels;
    why[LEVEL_BF16] = x->why;
    return levels & ~bf16;
}

void models_tune(const struct cpu_model *cpu, struct kernels *k)
{
    const struct known *x = find(cpu);

    if (x && k->few_bf16 > x->few_bf16) k->few_bf16 = x->few_bf16;
}

/* CPUID's way: the extended parts count for some base families only. */
struct cpu_model models_decode(const char vendor[12], uint32_t signature)
{
    const int base = (int)(signature >> 8 & 15), more = (int)(signature >> 20 & 255);
    const int low = (int)(signature >> 4 & 15), high = (int)(signature >> 16 & 15);

    return (struct cpu_model){
        .vendor = memcmp(vendor, "GenuineIntel", 12) == 0   ? CPU_INTEL
                  : memcmp(vendor, "AuthenticAMD", 12) == 0 ? CPU_AMD
                                                            : CPU_OTHER,
        .family = base == 15 ? base + more : base,
        .model = base == 15 || base == 6 ? high << 4 | low : low,
    };
}
