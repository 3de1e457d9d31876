/* dispatch.c -- CPU levels: detection, and the table of kernels they fill.
 *
 * A level counts only if the CPU has its instructions, the system saves its registers and
 * the level below is available too.
 */
#if defined(__AVX__) || defined(__AVX2__) || defined(__AVX512F__)
#error "dispatch.c must run on any CPU: keep ISA flags out of it"
#endif

#include <stddef.h>

#include "kernels/kernels.h"

const char *const kernel_names[N_KERNELS] = {
#define KERNEL(name, result, args) #name,
#include "kernels/kernels.def"
#undef KERNEL
};

const char *const level_names[N_LEVELS] = {
    [LEVEL_PORTABLE] = "portable", [LEVEL_AVX2] = "avx2", [LEVEL_AVX512] = "avx512",
    [LEVEL_BF16] = "avx512bf16",   [LEVEL_AMX] = "amx",
};

kernel_fn kernels_slot(const struct kernels *k, int id)
{
    switch (id) {
#define KERNEL(name, result, args)                                                     \
    case K_##name:                                                                     \
        return (kernel_fn)k->name;
#include "kernels/kernels.def"
#undef KERNEL
    default: return NULL;
    }
}

#if defined(__x86_64__)

#include <cpuid.h>

static uint64_t saved_registers(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool all_of(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

/* Registers of CPUID leaves 1, 7.0 and 7.1, and the register sets that the system saves. */
struct cpu {
    uint32_t ecx1, ebx7, ecx7, edx7, eax71;
    uint64_t saved;
};

static struct cpu detect_cpu(void)
{
    struct cpu c = { 0 };
    uint32_t   eax, ebx, ecx, edx;

    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) c.ecx1 = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        c.ebx7 = ebx;
        c.ecx7 = ecx;
        c.edx7 = edx;
        if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) c.eax71 = eax;
    }
    if (c.ecx1 >> 27 & 1) c.saved = saved_registers();
    return c;
}

struct cpu_model kernels_cpu(void)
{
    uint32_t eax, name[3], signature;

    if (!__get_cpuid(0, &eax, &name[0], &name[2], &name[1]) ||
        !__get_cpuid(1, &signature, &(uint32_t){ 0 }, &(uint32_t){ 0 },
                     &(uint32_t){ 0 }))
        return (struct cpu_model){ CPU_OTHER, 0, 0 };
    return models_decode((const char *)name, signature);
}

static const char *why_not(enum level level, const struct cpu *c)
{
    enum {
        FMA = 1 << 12,
        F16C = 1 << 29, /* leaf 1 */
        AVX2 = 1 << 5,
        AVX512F = 1 << 16,
        AVX512DQ = 1 << 17,
        AVX512BW = 1 << 30, /* leaf 7 */
        BF16 = 1 << 5,      /* leaf 7.1 */
        VBMI = 1 << 1,
        VBMI2 = 1 << 6, /* leaf 7, ecx */
        AMX_BF16 = 1 << 22,
        AMX_TILE = 1 << 24, /* leaf 7, edx */
        YMM = 6,
        ZMM = 0xe0,
        TILES = 3 << 17 /* saved */
    };
    const uint32_t vl = UINT32_C(1) << 31;

    switch (level) {
    case LEVEL_AVX2:
        if (!all_of(c->ebx7, AVX2) || !all_of(c->ecx1, FMA | F16C))
            return "the CPU lacks AVX2, FMA or F16C";
        if (!all_of(c->saved, YMM)) return "the system does not save ymm";
        return NULL;
    case LEVEL_AVX512:
        if (!all_of(c->ebx7, AVX512F | AVX512DQ | AVX512BW | vl))
            return "the CPU lacks AVX-512 F, DQ, BW or VL";
        if (!all_of(c->saved, ZMM)) return "the system does not save zmm";
        return NULL;
    case LEVEL_BF16:
        if (!all_of(c->eax71, BF16)) return "the CPU lacks AVX512-BF16";
        return NULL;
    case LEVEL_AMX:
        if (!all_of(c->ecx7, VBMI | VBMI2)) return "the CPU lacks AVX512-VBMI or VBMI2";
        return tiles_why_not(all_of(c->edx7, AMX_TILE | AMX_BF16),
                             all_of(c->saved, TILES));
    default: return NULL;
    }
}

static void (*const fill[N_LEVELS])(struct kernels *) = {
    [LEVEL_PORTABLE] = kernels_ref,  [LEVEL_AVX2] = kernels_avx2,
    [LEVEL_AVX512] = kernels_avx512, [LEVEL_BF16] = kernels_bf16,
    [LEVEL_AMX] = kernels_amx,
};

unsigned kernels_detect(enum level top, const char *why[N_LEVELS])
{
    const struct cpu c = detect_cpu();
    unsigned         levels = 1u << LEVEL_PORTABLE;

    why[LEVEL_PORTABLE] = NULL;
    for (int i = LEVEL_PORTABLE + 1; i < N_LEVELS && i <= (int)top; i++) {
        why[i] = levels >> (i - 1) & 1 ? why_not((enum level)i, &c)
                                       : "the level below is missing";
        if (!why[i]) levels |= 1u << i;
    }
    return levels;
}

#else

struct cpu_model kernels_cpu(void) { return (struct cpu_model){ CPU_OTHER, 0, 0 }; }

static void (*const fill[N_LEVELS])(struct kernels *) = {
    [LEVEL_PORTABLE] = kernels_ref,
};

unsigned kernels_detect(enum level top, const char *why[N_LEVELS])
{
    why[LEVEL_PORTABLE] = NULL;
    for (int i = LEVEL_PORTABLE + 1; i < N_LEVELS && i <= (int)top; i++)
        why[i] = "built for a machine other than x86-64";
    return 1u << LEVEL_PORTABLE;
}

#endif

void kernels_init(struct kernels *k, unsigned levels)
{
    kernels_ref(k);
    for (int i = LEVEL_PORTABLE + 1; i < N_LEVELS; i++)
        if (levels >> i & 1 && fill[i]) fill[i](k);
}
