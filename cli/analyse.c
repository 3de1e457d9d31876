/* analyse.c -- foci analyse: the forms of the verb, each in files of its own, and their options. */
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"

/* Forms of the verb, and the options that each takes beside --seed. */
static const struct form {
    const char *title;  /* in messages */
    const char *option; /* that chooses it; NULL: its word does */
    int (*run)(const struct args *a);
    const char *needs; /* NULL: nothing */
    bool        word;  /* it takes one */
    const char *takes[24];
} forms[] = {
    { "--estimator",
      "estimator",
      analyse_estimator,
      "dim",
      false,
      { "dim", "draws", "norms", "cosines", "pairs" } },
    { "--error",
      "error",
      analyse_error,
      NULL,
      true,
      { "dim", "length", "keys", "spreads", "axis", "q", "k", "v", "text", "source",
        "target", "labels", "reverse", "task", "split", "causal", "out", "csv",
        "threads" } },
    { "--orthogonality",
      "orthogonality",
      analyse_orthogonality,
      "width",
      false,
      { "width", "heads", "head-dim", "draws", "x", "limits", "out" } },
    { "--theory",
      "theory",
      analyse_theory,
      NULL,
      false,
      { "beta", "gamma", "ratio", "features", "lambda", "lengths", "draws", "out",
        "csv" } },
    { "--dilution",
      "dilution",
      analyse_dilution,
      NULL,
      false,
      { "attention", "beta", "gamma", "margin", "distance", "lengths", "dim", "draws",
        "out", "csv", "threads" } },
    { "--weights",
      "weights",
      analyse_weights,
      NULL,
      false,
      { "causal", "top", "rank", "rows", "out", "csv", "threads" } },
    { "SPEC",
      NULL,
      analyse_tensors,
      NULL,
      true,
      { "q", "k", "v", "x", "causal", "param", "mask", "bias", "len-q", "len-k",
        "calibrate", "dtype", "top", "sample", "rank", "rows", "out", "csv",
        "threads" } },
    { "DIR",
      NULL,
      analyse_model,
      NULL,
      true,
      { "text", "source", "target", "labels", "reverse", "task", "split", "sequences",
        "ablate", "top", "sample", "rank", "rows", "out", "csv", "threads" } },
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static bool takes(const struct form *f, const char *name)
{
    for (int i = 0; f->takes[i]; i++)
        if (!strcmp(f->takes[i], name)) return true;
    return false;
}

/* Refuse an option of other forms, and name them. */
static int foreign(const struct args *a, const char *name)
{
    char text[160] = "";
    int  left = 0;

    for (int i = 0; i < N_FORMS; i++)
        left += takes(&forms[i], name);
    for (int i = 0; i < N_FORMS; i++)
        if (takes(&forms[i], name)) {
            left--;
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
                     forms[i].title,
                     left > 1 ? ", "
                     : left   ? " and "
                              : "");
        }
    return usage_error(a, "--%s belongs to %s", name, text);
}

static bool chooses(const struct args *a, const struct form *f)
{
    return f->option && opt_flag(a, f->option);
}

/* An option that belongs to other forms only. */
static int check_options(const struct args *a, const struct form *f)
{
    for (int i = 0; i < N_FORMS; i++)
        if (&forms[i] != f && chooses(a, &forms[i]))
            return usage_error(a, "%s and %s do not go together", f->title,
                               forms[i].title);
    if (f->needs && !opt_text(a, f->needs))
        return usage_error(a, "--%s is missing; usage: foci analyse %s SPEC --%s N",
                           f->needs, f->title, f->needs);
    if (a->n_words && !f->word)
        return usage_error(a, "'%s' is one word too many: %s takes none", a->words[0],
                           f->title);
    for (int i = 0; i < N_FORMS; i++)
        for (int t = 0; forms[i].takes[t]; t++) {
            const char *name = forms[i].takes[t];
            if (opt_flag(a, name) && !takes(f, name)) return foreign(a, name);
        }
    return EXIT_OK;
}

/* Tensors make a word a spec, else it is the folder of a model. */
static const struct form *find_form(const struct args *a)
{
    static const char *const tensors[] = { "q", "k", "v", "x" };
    bool                     given = false;

    for (int i = 0; i < N_FORMS; i++)
        if (chooses(a, &forms[i])) return &forms[i];
    if (!a->n_words) return NULL;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        given = given || opt_flag(a, tensors[i]);
    return &forms[given ? N_FORMS - 2 : N_FORMS - 1];
}

static int run(const struct args *a)
{
    const struct form *f = find_form(a);

    if (!f)
        return usage_error(
            a,
            "a model's folder, SPEC with --q and --k, --weights, --estimator, --error, "
            "--orthogonality, --theory or --dilution is missing; usage: foci analyse "
            "DIR --text FILE, for instance");
    const int code = check_options(a, f);
    return code ? code : f->run(a);
}

#define FILE_OPTION(name_, help_)                                                      \
    {                                                                                  \
        .name = name_, .arg = "FILE", .help = help_, .kind = KIND_TEXT                 \
    }

static const struct option options[] = {
    { .name = "estimator",
      .arg = "SPEC",
      .help = "random features to look at, each in rows of its own",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "error",
      .arg = "SPEC",
      .help = "mechanisms whose outputs and weights are held against softmax",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "orthogonality",
      .arg = "SPEC",
      .help = "frozen projections to look at",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "theory",
      .arg = "KIND",
      .help = "how evenly weights of random keys are spread: exp, relu2, ...",
      .kind = KIND_WORD,
      .words = "exp|relu2|identity|linear|decay" },
    { .name = "dilution",
      .help = "the weight of one relevant key as keys of noise are added" },
    { .name = "attention",
      .arg = "SPEC",
      .help = "mechanisms of --dilution (default seven)",
      .kind = KIND_TEXT,
      .many = true },
    { .name = "beta",
      .arg = "LIST",
      .help = "means of the logits of noise (--theory: -4 to 4, --dilution: 0)",
      .kind = KIND_TEXT },
    { .name = "gamma",
      .arg = "LIST",
      .help = "their standard deviations (--dilution: 1)",
      .kind = KIND_TEXT },
    { .name = "margin",
      .arg = "M",
      .help = "how far the logit of the relevant key is above beta (default 6)",
      .kind = KIND_REAL,
      .min = -1000,
      .max = 1000 },
    { .name = "distance",
      .arg = "N",
      .help = "keys from the query back to the relevant one (default 8)",
      .kind = KIND_WHOLE,
      .max = MOST_KEYS },
    { .name = "lengths",
      .arg = "LIST",
      .help = "keys of --theory decay (1 to 4096) and --dilution (16 to 65536)",
      .kind = KIND_TEXT },
    { .name = "lambda",
      .arg = "LIST",
      .help = "decays of --theory decay (default 0.5,0.9,0.99,0.999)",
      .kind = KIND_TEXT },
    { .name = "ratio",
      .arg = "LIST",
      .help = "standard deviations of features over their means (default 0..4:9)",
      .kind = KIND_TEXT },
    { .name = "features",
      .arg = "LIST",
      .help = "how many there are, for --theory linear (default 1,4,16,64)",
      .kind = KIND_TEXT },
    { .name = "dim",
      .arg = "D",
      .help = "width of queries and keys (--dilution: 64)",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = MAX_DIM },
    { .name = "draws",
      .arg = "N",
      .help = "random draws (1000; projections 32, --theory 100000, --dilution 16)",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 1e9 },
    { .name = "norms",
      .arg = "LIST",
      .help = "lengths of x and y (default 0.25,0.5,1)",
      .kind = KIND_TEXT },
    { .name = "cosines",
      .arg = "LIST",
      .help = "of the angles between them (default -0.5,0,0.5)",
      .kind = KIND_TEXT },
    { .name = "pairs",
      .arg = "N",
      .help = "random pairs of each length and angle (default 4)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 10000 },
    { .name = "seed",
      .arg = "N",
      .help = "draw everything from this seed (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    { .name = "length",
      .arg = "N",
      .help = "tokens of --error (default 512)",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 65536 },
    { .name = "keys",
      .arg = "KIND",
      .help = "q and k of --error: gaussian, clustered, or both (default)",
      .kind = KIND_WORD,
      .words = "gaussian|clustered|both" },
    { .name = "spreads",
      .arg = "LIST",
      .help = "standard deviations of the logits (default 0.25 to 8)",
      .kind = KIND_TEXT },
    { .name = "out",
      .arg = "FILE",
      .help = "where a picture goes: .svg or .png; not of --estimator",
      .kind = KIND_TEXT },
    { .name = "csv",
      .arg = "FILE",
      .help = "where the numbers go with all digits; not of --estimator",
      .kind = KIND_TEXT },
    { .name = "width",
      .arg = "W",
      .help = "of the hidden states of --orthogonality",
      .kind = KIND_WHOLE,
      .min = 2,
      .max = 16384 },
    { .name = "heads",
      .arg = "H",
      .help = "of --orthogonality (default 1)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1024 },
    { .name = "head-dim",
      .arg = "D",
      .help = "width of a head (default W / H)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 16384 },
    { .name = "x",
      .arg = "FILE",
      .help = "hidden states of --orthogonality, N x W (default normal), or of SPEC",
      .kind = KIND_TEXT },
    FILE_OPTION("weights", "matrices of weights: N x N, H x N x N or B x H x N x N"),
    FILE_OPTION("q", "queries, as for foci run; of --error those that are compared on"),
    FILE_OPTION("k", "keys, likewise"),
    FILE_OPTION("v", "values, likewise; SPEC alone needs none"),
    { .name = "causal", .help = "query i sees the keys up to i, counted from the end" },
    { .name = "param",
      .arg = "NAME=FILE",
      .help = "a parameter of SPEC, for each head or for all; a list; words",
      .kind = KIND_TEXT,
      .many = true },
    FILE_OPTION("mask", "of SPEC: pairs that are seen, as for foci run"),
    FILE_OPTION("bias", "of SPEC: added to the logits, as for foci run"),
    FILE_OPTION("len-q", "of SPEC: queries of each sequence that count"),
    FILE_OPTION("len-k", "of SPEC: keys of each that count"),
    { .name = "calibrate", .help = "of SPEC: statistics of this q and k first" },
    { .name = "dtype",
      .arg = "TYPE",
      .help = "of SPEC: f32 (default), or bf16, which rounds the inputs",
      .kind = KIND_WORD,
      .words = "f32|bf16" },
    FILE_OPTION("text", "of a model: what it is looked at on, as foci eval --data"),
    FILE_OPTION("source", "of a model: sentences to translate from"),
    FILE_OPTION("target", "of a model: their translations, line by line"),
    FILE_OPTION("labels", "of a model: classes of images, in .npy"),
    { .name = "reverse",
      .help = "of a model: translate the second column into the first" },
    { .name = "task",
      .arg = "TEXT",
      .help = "of a model: examples of a generator, as 'mqar(pairs=8)'",
      .kind = KIND_TEXT },
    { .name = "split",
      .arg = "NAME",
      .help = "of a model: of what it was trained on: valid (default), test, train",
      .kind = KIND_WORD,
      .words = "train|valid|test" },
    { .name = "sequences",
      .arg = "N",
      .help = "of a model: so many are looked at, in batches (default 8)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 20 },
    { .name = "ablate",
      .help = "of a model: its loss without each head, one at a time" },
    { .name = "top",
      .arg = "K",
      .help = "weights of a row whose share is told (default 8)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "sample",
      .arg = "N",
      .help = "rows of each sequence that count, evenly spaced (default all)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "rank",
      .arg = "N",
      .help = "longest sequences whose ranks are computed (default 512)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 16384 },
    { .name = "rows", .help = "every row too, with --json or in the file of --csv" },
    { .name = "limits",
      .help = "of --orthogonality: logits and weights beside their limits, by kind" },
    { .name = "axis",
      .arg = "NAME=LIST",
      .help = "columns of --error: length, dim, or an argument, as features=16..256:5",
      .kind = KIND_TEXT },
    OPTION_THREADS,
    { 0 },
};

static const char *const examples[] = {
    "foci analyse foci-lm --text book.txt",
    "foci analyse foci-lm --ablate --csv heads.csv",
    "foci analyse --weights a.npy --causal --top 2",
    "foci analyse '4*softmax + 4*relu2' --q q.npy --k k.npy --causal --sample 512",
    "foci analyse --estimator performer --dim 64",
    "foci analyse --estimator performer --estimator 'performer(kind=hyp)' --dim 16",
    "foci analyse --estimator 'performer(rows=unit)' --dim 8 --norms 1 --draws 9999",
    "foci analyse --error linear --error performer --dim 64 --out errors.svg",
    "foci analyse --error performer --dim 64 --axis features=16..256:5",
    "foci analyse foci-lm --error performer --error linear --causal",
    "foci analyse --orthogonality orthogonal --width 256 --heads 4",
    "foci analyse --orthogonality orthogonal --width 128 --head-dim 16 --limits",
    "foci analyse --orthogonality orthogonal --width 512 --x x.npy --out kept.svg",
    "foci analyse --theory relu2 --beta -6..6:13 --gamma 1 --out relu2.svg",
    "foci analyse --theory decay --lambda 0.9,0.99 --lengths 50,500",
    "foci analyse --dilution --attention softmax --attention relu2 --out d.svg",
    NULL,
};

const struct verb verb_analyse = {
    .name = "analyse",
    .run = run,
    .summary =
        "what heads do, random features, errors, frozen projections, concentration",
    .usage = "[DIR|SPEC]",
    .max_words = 1,
    .options = options,
    .examples = examples,
    .notes =
        "DIR is a trained model, whose heads are looked at on --text or on what it was "
        "validated\n"
        "by; SPEC computes the weights of --q and --k; --weights has them.  For each "
        "head:\n"
        "S = |a|_1 / (sqrt(n) |a|_2) over the n keys that a row is shown, 1 where all "
        "weigh the\n"
        "same; entropy in nats, over log n, and e to it; the share of the largest "
        "weights; the\n"
        "distance of keys, weighed; effective and numerical rank of the matrix; and "
        "the "
        "pattern\n"
        "of `fixed` that the head follows most, with the sum of min(a, pattern), 1 "
        "where it does\n"
        "what the pattern does.  Numbers are means over rows.  Likeness of two heads "
        "is "
        "the sum\n"
        "of min(a, b).  What does not apply is - or null, with the reason.\n\n"
        "x = sqrt(s) q and y = sqrt(s) k are random pairs of equal length; exact is "
        "e^(x.y),\n"
        "or e^(-|x-y|^2/2) with kernel=gaussian.  mean, with its standard error, and "
        "variance\n"
        "are those of the estimates that draws of omega give; closed form is the "
        "variance of\n"
        "independent rows, and ratio the measured one over it: below 1 where "
        "orthogonal rows\n"
        "help.  Statistics that a kind needs are those of random rows of that "
        "length.\n\n"
        "--error prints |o - o'| / |o'| over all rows, o' of softmax, and the same of "
        "weights over\n"
        "16 rows of a head: the root mean square over heads, 8 of random tensors.  "
        "Columns are\n"
        "what --axis says or, of random tensors, the standard deviation that the "
        "logits "
        "s q.k of\n"
        "all pairs are scaled to.  "
        "There q, k and v are standard normal; clustered q and k are\n"
        "drawn around 16 centres.\n\n"
        "--orthogonality draws the frozen query and key projections of layers, W of W "
        "x "
        "D a\n"
        "head, and prints what they do to hidden states x and y of length 1 with the "
        "cosine 1/2,\n"
        "with the standard error of what is a mean over draws, beside what theory "
        "says: "
        "of\n"
        "frames, or of normal entries with frozen(gaussian).  The second table is the "
        "change of\n"
        "squared distances, scaled by W/D, of all pairs of hidden states; bound is "
        "that "
        "of Johnson\n"
        "and Lindenstrauss, for all pairs at once, - where it says nothing.  --limits "
        "adds how far\n"
        "logits and weights of one head and of the mean of 8 are from their limit, of "
        "each kind,\n"
        "tied (the kernel of the hidden states) and not (all keys the same), and which "
        "kind spreads\n"
        "least for what it costs to project a row.\n\n"
        "--theory prints S = E|a| / sqrt(E a^2) of weights a: 1 where all are the "
        "same, "
        "near 0\n"
        "where few keys have nearly all.  exp, relu2 and identity weigh normal logits "
        "of "
        "mean\n"
        "--beta and standard deviation --gamma; linear sums --features of them that "
        "are "
        "not\n"
        "negative; decay is lambda^(n-1), ..., 1.  Beside it stands the same number "
        "by\n"
        "integration and from random draws, with its standard error.\n\n"
        "--dilution puts a query behind N keys: one relevant, with the logit beta + "
        "margin, the\n"
        "others noise around beta.  weight is that of the relevant key over the sum of "
        "all sizes\n"
        "of weights, S that of the row; both are means over draws with half the width "
        "of "
        "their\n"
        "95 % interval.  theory takes expectations in place of the sum over noise: "
        "e^m / (e^m +\n"
        "(N - 1) e^(gamma^2 / 2)) for softmax with the margin m.\n\n"
        "A LIST is 1,2,5 or 0..1:11, eleven numbers from 0 to 1, or both with commas.",
};
