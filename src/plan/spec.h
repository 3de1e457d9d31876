/* spec.h -- what the files of the spec parser share. */
#ifndef FOCI_SPEC_H
#define FOCI_SPEC_H

#include "plan/plan.h"

/* A spec and its printed form are no longer than this, so that what is printed can
 * be parsed. */
enum { SPEC_MAX = 65535, SPEC_DEPTH = 8, SPEC_GROUPS = 4096 };

/* A piece of the text. */
struct text_span {
    const char *s;
    size_t      len;
};

bool span_is(struct text_span a, const char *text);

/* A span for messages: shortened, without control characters; in quotes, or bare. */
struct quote {
    char text[48];
};
struct quote span_quote(struct text_span a);
struct quote span_bare(struct text_span a);

/* The name with the fewest edits from a misspelt one; none that is far off. */
struct nearest {
    struct text_span word;
    struct text_span name; /* .s is NULL while none near was offered */
    int              edits;
};
void nearest_offer(struct nearest *n, struct text_span name);
void nearest_offer_text(struct nearest *n, const char *name);

/* The end of a message: "; the nearest is NAME", or `otherwise` where there is none. */
struct near_hint {
    char text[240];
};
struct near_hint nearest_hint(const struct nearest *n, const char *otherwise);
/* The same of a mechanism or a modifier: the literature may call it so. */
struct near_hint paper_hint(struct nearest *n, const char *otherwise);

/* A number as C writes them in decimal, whatever the locale; false: it is none, or
 * overflows. */
bool number_parse(struct text_span a, double *out);
/* The shortest text that gives x back. */
void number_print(double x, char text[32]);

/* Word number i of "elu|relu|poly"; false beyond the last. */
bool word_at(const char *words, int i, struct text_span *out);

struct spec_reader {
    foci_ctx   *ctx;
    const char *text, *at, *end;
    const char
        *label; /* prefix of messages: the origin of a text that is not the caller's */
};

/* Fail with the column of `at`. */
foci_status reader_fail(const struct spec_reader *r, const char *at, const char *format,
                        ...) PRINTF_LIKE(3, 4);

/* Whose arguments are read: a mechanism's or a modifier's. */
struct owner {
    const char         *name;
    const foci_arg_def *args;
    size_t              n_args;
    double             *arg;
    foci_mech          *mech; /* NULL: a modifier */
    int                 depth;
};

void             reader_blanks(struct spec_reader *r);
struct text_span reader_name(struct spec_reader *r);

/* [ "(" arg { "," arg } ")" ], and presets for those not given. */
foci_status reader_args(struct spec_reader *r, const char *at, const struct owner *o);
/* mechanism { modifier } */
foci_status reader_mech(struct spec_reader *r, foci_mech *m, int depth);

#endif
