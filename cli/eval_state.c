/* eval_state.c -- scores of all data, by whole sequences or by decoding. */
#include <inttypes.h>

#include "cli/eval.h"

int eval_scores(const struct judged *j, foci_labels_fn labels, void *user,
                foci_scores *scores)
{
    foci_data_info info = { FOCI_SIZED(foci_data_info) };
    const bool     state = opt_flag(j->a, "state");

    (void)foci_data_get_info(j->data, &info);
    if (!state && j->config.task == FOCI_MODEL_LM && info.len > j->config.context)
        return usage_error(j->a,
                           "the data have sequences of up to %" PRId64
                           " tokens, and the context of the model is %" PRId64
                           ": --state goes on beyond it",
                           info.len, j->config.context);
    if (state && opt_flag(j->a, "costs") && info.len > j->config.context)
        return usage_error(
            j->a,
            "--costs are of sequences within the context, which is %" PRId64
            ", and the data have some of up to %" PRId64,
            j->config.context, info.len);
    const foci_status status =
        state ? foci_evaluate_steps(j->model, j->data, 0, labels, user, scores)
              : foci_evaluate_labels(j->model, j->data, 0, labels, user, scores);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}
