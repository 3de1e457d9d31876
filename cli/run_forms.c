/* run_forms.c -- the two forms of `foci run`: heads from q, k and v, or a whole layer from
 * hidden states; and the options that exclude each other in each. */
#include "cli/run.h"

/* Any of these makes it a layer. */
static const char *const of_layers[] = { "heads",         "layer",    "head-dim",
                                         "value-dim",     "kv-heads", "biases",
                                         "source",        "memory",   "index",
                                         "output-dropout" };

/* The first that was given; NULL: none. */
static const char *given(const struct args *a, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (opt_flag(a, names[i])) return names[i];
    return NULL;
}

#define GIVEN(a, names) given(a, names, sizeof(names) / sizeof *(names))

bool run_is_layer(const struct args *a) { return GIVEN(a, of_layers) != NULL; }

static int check_layer(const struct args *a)
{
    static const char *const of_heads[] = { "q", "k", "v" };
    const char *const        layer = GIVEN(a, of_layers);
    const char              *other = GIVEN(a, of_heads);

    if (!layer)
        return opt_flag(a, "transposed")
                   ? usage_error(a, "--transposed is of the projections of a layer; it "
                                    "needs --heads N and --x FILE")
                   : EXIT_OK;
    if (opt_flag(a, "layout"))
        return usage_error(a,
                           "--layout and --%s do not go together: hidden states of a "
                           "layer have no heads",
                           layer);
    if (opt_flag(a, "transposed") && !opt_flag(a, "param") && !opt_flag(a, "params"))
        return usage_error(a, "--transposed needs --param or --params, whose matrices "
                              "are stored so");
    if (other)
        return usage_error(a,
                           "--%s and --%s do not go together: a layer makes q, k and v "
                           "of --x itself",
                           other, layer);
    if (opt_flag(a, "weights"))
        return usage_error(
            a,
            "--weights and --%s do not go together: weights are of heads, "
            "from --q, --k and --v",
            layer);
    if (!opt_text(a, "x"))
        return usage_error(a, "--%s needs --x FILE, the hidden states of the layer",
                           layer);
    if (!opt_flag(a, "heads") && opt_word(a, "layer", 0) != FOCI_LAYER_GAU)
        return usage_error(a, "--%s needs --heads N, the heads of the layer", layer);
    if (opt_flag(a, "source") && opt_flag(a, "memory"))
        return usage_error(a,
                           "--source and --memory do not go together: keys come from "
                           "the one or stand before x");
    if (opt_flag(a, "len-k") && !opt_flag(a, "source"))
        return usage_error(a,
                           "--len-k needs --source, whose rows it counts; those of x "
                           "are counted by --len-q");
    if (opt_flag(a, "step") && opt_flag(a, "source"))
        return usage_error(a, "--step and --source do not go together");
    return EXIT_OK;
}

static int check_step(const struct args *a)
{
    static const char *const apart[] = { "dout", "ref",     "docs",          "mask",
                                         "bias", "dropout", "output-dropout" };
    const char *const        other = GIVEN(a, apart);

    if (!opt_flag(a, "step")) return EXIT_OK;
    if (!opt_flag(a, "causal"))
        return usage_error(
            a, "--step needs --causal: decoding sees only what came before");
    return other ? usage_error(a, "--step and --%s do not go together", other)
                 : EXIT_OK;
}

int run_check_options(const struct args *a)
{
    static const char *const results[] = { "out", "weights", "grads", "dump-params" };

    if (opt_text(a, "dout") && !opt_text(a, "grads"))
        return usage_error(a, "--dout needs --grads PREFIX, where the gradients go");
    if (opt_text(a, "grads") && !opt_text(a, "dout"))
        return usage_error(a, "--grads needs --dout FILE, the gradient of the output");
    const int code = check_step(a);
    if (code) return code;
    if (opt_flag(a, "dropout-seed") && !opt_flag(a, "dropout") &&
        !opt_flag(a, "output-dropout"))
        return usage_error(a, "--dropout-seed needs --dropout P, the share to drop");
    if (!GIVEN(a, results))
        return usage_error(a, "nothing is to be written: give --out, --weights, "
                              "--grads or --dump-params");
    return check_layer(a);
}
