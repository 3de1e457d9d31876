/* seqs.c -- the sequences of an execution: batch entries or packed documents. */
#include "plan/plan.h"

int64_t plan_max_seqs(const foci_plan *plan)
{
    return max64(plan->p.batch, plan->p.max_docs);
}

int64_t plan_seqs(const foci_plan *plan, const foci_io *io, struct seq *seqs)
{
    const foci_problem *p = &plan->p;

    if (io->docs) {
        for (int64_t d = 0; d < io->n_docs; d++) {
            const int64_t at = io->docs[d], n = io->docs[d + 1] - at;
            seqs[d] = (struct seq){ .q0 = at, .k0 = at, .nq = n, .nk = n };
        }
        return io->n_docs;
    }
    for (int64_t b = 0; b < p->batch; b++)
        seqs[b] = (struct seq){
            .b = b,
            .nq = io->len_q ? io->len_q[b] : p->len_q,
            .nk = io->len_k ? io->len_k[b] : p->len_k,
        };
    return p->batch;
}
