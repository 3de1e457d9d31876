/* bench_product.c -- time products of matrices, which layers are made of: cases
 * product/mMnNkK/DTYPE/FORM. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "foci/product.h"

static const char name[] = "product/";

bool bench_is_product(const char *text)
{
    return strncmp(text, name, sizeof name - 1) == 0;
}

/* As plain matrices, or which one is stored the other way round. */
static const struct form {
    const char *name;
    uint32_t    flags;
} forms[] = {
    { "nn", 0 },
    { "tn", FOCI_PRODUCT_TRANSPOSE_A },
    { "nt", FOCI_PRODUCT_TRANSPOSE_B },
    { "tt", FOCI_PRODUCT_TRANSPOSE_A | FOCI_PRODUCT_TRANSPOSE_B },
};

static const struct type {
    const char *name;
    foci_dtype  dtype;
    uint32_t    flags, problem;
} types[] = {
    { "f32", FOCI_F32, 0, 0 },
    { "f32fast", FOCI_F32, FOCI_PRODUCT_FAST, FOCI_FLAG_FAST },
    { "bf16", FOCI_BF16, 0, 0 },
};

enum { MOST = 1 << 24, CAP = 64 };

/* m4096n1024k1024, all three and in this order. */
static bool read_extents(const char *text, int64_t *extents)
{
    for (int i = 0; i < 3; i++) {
        char *end;

        if (*text++ != "mnk"[i] || !isdigit((unsigned char)*text)) return false;
        const unsigned long long x = strtoull(text, &end, 10);
        if (x < 1 || x > MOST) return false;
        extents[i] = (int64_t)x;
        text = end;
    }
    return !*text;
}

static const struct form *find_form(const char *word)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(word, forms[i].name) == 0) return &forms[i];
    return NULL;
}

static const struct type *find_type(const char *word)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(word, types[i].name) == 0) return &types[i];
    return NULL;
}

int bench_product_parse(const struct args *a, const char *text, struct bench_case *c)
{
    char        copy[CAP] = "";
    const char *words[3] = { copy, "", "nn" };
    int64_t     extents[3] = { 0, 0, 0 };

    *c = (struct bench_case){ .text = text, .problem = { FOCI_SIZED(foci_problem) } };
    strncpy(copy, text + sizeof name - 1, sizeof copy - 1);
    for (int i = 1; i < 3; i++) {
        char *slash = strchr(words[i - 1], '/');
        if (!slash) break;
        *slash = '\0';
        words[i] = slash + 1;
    }
    const struct type *type = find_type(words[1]);
    const struct form *form = find_form(words[2]);
    if (strlen(text) >= CAP || !read_extents(words[0], extents) || !type || !form)
        return usage_error(
            a,
            "case \"%s\": a product is product/mMnNkK/DTYPE/FORM, for "
            "instance product/m4096n1024k1024/bf16/nt: M, N and K from 1 "
            "to %d, DTYPE f32, f32fast or bf16, FORM nn, tn, nt or tt",
            text, MOST);
    c->problem.dtype = type->dtype;
    c->problem.flags = type->problem;
    c->product = (struct bench_product){ extents[0], extents[1], extents[2],
                                         form->flags | type->flags };
    return EXIT_OK;
}

struct bench_product_job {
    foci_ctx       *ctx;
    foci_product_io io;
};

static foci_status once(void *self)
{
    const struct bench_product_job *j = self;
    return foci_product(j->ctx, &j->io);
}

int bench_product(const struct args *a, foci_ctx *ctx, const struct bench_case *c,
                  int reps, double time, struct bench_result *r)
{
    const struct bench_product *p = &c->product;
    const foci_dtype            type = c->problem.dtype;
    const double                m = (double)p->m, n = (double)p->n, k = (double)p->k;
    struct bench_product_job    j = { ctx,
                                      { FOCI_SIZED(foci_product_io), .m = p->m, .n = p->n,
                                        .k = p->k, .type_a = type, .type_b = type,
                                        .type_c = type, .flags = p->flags } };

    *r = (struct bench_result){ .flops = 2 * m * n * k,
                                .bytes = (m * k + k * n + m * n) *
                                         (double)foci_dtype_bytes(type),
                                .density = 1,
                                .work_bytes = foci_product_work_bytes(ctx, &j.io) };
    void *const all[] = { bench_draw(type, (size_t)(p->m * p->k), 1),
                          bench_draw(type, (size_t)(p->k * p->n), 2),
                          need((size_t)(p->m * p->n), foci_dtype_bytes(type)),
                          need(r->work_bytes, 1) };
    j.io.a = all[0];
    j.io.b = all[1];
    j.io.c = all[2];
    j.io.work = all[3];
    r->plan = need(1, 1); /* there is none */

    const foci_status status = bench_repeat(once, NULL, &j, reps, time, r);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return status == FOCI_OK ? EXIT_OK : library_error(a, ctx, status, c->text);
}
