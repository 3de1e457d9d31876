/* eval_state.c -- scores by decoding, for sequences beyond the context. */
#include <inttypes.h>

#include "cli/eval.h"

int eval_scores(const struct args *a, foci_ctx *ctx, foci_model *model, foci_data *data,
                foci_scores *scores)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config) };
    foci_data_info    info = { FOCI_SIZED(foci_data_info) };
    const bool        state = opt_flag(a, "state");

    (void)foci_model_get_config(model, &c);
    (void)foci_data_get_info(data, &info);
    if (!state && c.task == FOCI_MODEL_LM && info.len > c.context)
        return usage_error(a,
                           "the data have sequences of up to %" PRId64
                           " tokens, and the context of the model is %" PRId64
                           ": --state goes on beyond it",
                           info.len, c.context);
    const foci_status status = state ? foci_evaluate_steps(model, data, 0, scores)
                                     : foci_evaluate(model, data, 0, scores);
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}
