/* decode.c -- decoding many sequences of unequal length from one pool.
 *
 * Three sequences share a prompt; each then goes its own way, token by token, in one
 * call a step.  The prompt's pages are held once: copies share them until they write.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <foci/foci.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, PROMPT = 100, STEPS = 40, BEAMS = 3 };

static float q[PROMPT * HEADS * DIM], o[PROMPT * HEADS * DIM];
static float k[PROMPT * KV_HEADS * DIM], v[PROMPT * KV_HEADS * DIM];

static void draw(float *x, int n, int seed)
{
    for (int i = 0; i < n; i++)
        x[i] = sinf(0.7f * (float)i + 1.3f * (float)seed);
}

int main(void)
{
    foci_ctx    *ctx = NULL;
    foci_plan   *plan = NULL;
    foci_pool   *pool = NULL;
    foci_state  *beam[BEAMS] = { NULL };
    foci_problem p = { FOCI_SIZED(foci_problem),
                       .flags = FOCI_FLAG_CAUSAL,
                       .batch = 1,
                       .heads = HEADS,
                       .kv_heads = KV_HEADS,
                       .len_q = 1,
                       .len_k = 1,
                       .dim_qk = DIM };

    if (foci_ctx_create(NULL, &ctx) || foci_plan_create(ctx, "softmax", &p, &plan) ||
        foci_pool_create(plan, 2, &pool) || foci_state_create(pool, &beam[0]))
        return fprintf(stderr, "%s\n", foci_errmsg(ctx));
    void *work =
        aligned_alloc(64, foci_step_work_bytes(pool, BEAMS, PROMPT, PROMPT + STEPS));

    /* The prompt in one step, then two copies of what it left. */
    foci_step_io io = { FOCI_SIZED(foci_step_io), .q = q, .k = k, .v = v, .o = o };
    io.states = beam;
    io.n_states = 1;
    io.tokens = (const int32_t[]){ PROMPT };
    io.work = work;
    draw(q, PROMPT * HEADS * DIM, 1);
    draw(k, PROMPT * KV_HEADS * DIM, 2);
    draw(v, PROMPT * KV_HEADS * DIM, 3);
    if (foci_step(pool, &io)) return fprintf(stderr, "%s\n", foci_errmsg(ctx));
    for (int b = 1; b < BEAMS; b++)
        if (foci_state_copy(beam[0], &beam[b])) return 1;
    printf("prompt: %d tokens in %d pages, held by %d sequences\n", PROMPT,
           (int)(foci_pool_page_count(pool) - foci_pool_free_count(pool)), BEAMS);

    /* One token of each sequence a step; a full pool is grown and the step repeated. */
    io.n_states = BEAMS;
    io.tokens = NULL;
    for (int t = 0; t < STEPS; t++) {
        draw(q, BEAMS * HEADS * DIM, t);
        draw(k, BEAMS * KV_HEADS * DIM, t + 100);
        draw(v, BEAMS * KV_HEADS * DIM, t + 200);
        foci_status status;
        while ((status = foci_step(pool, &io)) == FOCI_ERR_FULL)
            if (foci_pool_grow(pool, 4)) return 1;
        if (status) return fprintf(stderr, "%s\n", foci_errmsg(ctx));
    }
    printf("after %d steps: %d tokens each, %d pages in all\n", STEPS,
           (int)foci_state_len(beam[0]),
           (int)(foci_pool_page_count(pool) - foci_pool_free_count(pool)));

    for (int b = 0; b < BEAMS; b++)
        foci_state_free(beam[b]);
    foci_pool_free(pool);
    free(work);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    return 0;
}
