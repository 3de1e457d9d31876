/* cap.c -- logits held within (-c, c).
 *
 *     x <- c tanh(x / c)
 *
 * Gemma Team, "Gemma 2: Improving open language models at a practical size"
 * (2024), section 2.  Applied after scale and bias.  Costs a tanh for each pair.
 */
#include "mech/mech.h"

static const foci_arg_def args[] = {
    { .name = "c",
      .preset = 30,
      .min = 1e-30,
      .max = 1e30,
      .real = true,
      .help = "bound of the logits, above 0" },
};

const foci_mod_def mod_cap = {
    FOCI_SIZED(foci_mod_def),
    .name = "cap",
    .summary = "soft bound of the logits",
    .formula = "x <- c tanh(x / c)",
    .source =
        "Gemma Team, Gemma 2: Improving open language models at a practical size, 2024",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .does = FOCI_MOD_CAP,
};
