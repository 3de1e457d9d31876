/* cli.h -- what the verbs of the command share.
 *
 * A verb is one file with one entry, `const struct verb verb_NAME`, listed in
 * verbs.def.  Its table of options drives parsing, --help, the man page and the
 * completion of shells alike.  main() parses the command line before run() is
 * called, so run() sees known options with values of the right kind only.
 * --json, --quiet and --help belong to every verb: they are in common_options.
 *
 * Results go to stdout, all else to stderr.  main() flushes stdout at the end and
 * reports a failed write; verbs need not check.
 */
#ifndef FOCI_CLI_H
#define FOCI_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "foci/foci.h"

#if defined(__GNUC__)
#define CLI_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define CLI_PRINTF(f, a)
#endif

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/*
 * Verbs and options
 */

enum kind {
    KIND_FLAG,
    KIND_TEXT,  /* any text that is not empty */
    KIND_WHOLE, /* a whole number from min to max */
    KIND_REAL,  /* a finite number from min to max */
    KIND_WORD   /* one of `words` */
};

/* The largest whole number that no other one is rounded to when it is read. */
#define MOST_WHOLE 9007199254740991

struct option {
    const char *name; /* without dashes */
    const char *arg;  /* "FILE"; NULL: a flag */
    const char *help; /* one line, no full stop */
    enum kind   kind;
    const char *words;    /* KIND_WORD: "f32|bf16" */
    double      min, max; /* KIND_WHOLE, KIND_REAL */
    bool        below;    /* max itself is not taken */
    bool        many;     /* may be given more than once */
};

/* Options that several verbs have, the same on each. */
#define OPTION_THREADS                                                                 \
    {                                                                                  \
        .name = "threads", .arg = "N",                                                 \
        .help = "threads to use (default $FOCI_THREADS, or one a core)",               \
        .kind = KIND_WHOLE, .min = 1, .max = 1024                                      \
    }
#define OPTION_DEVICE                                                                  \
    {                                                                                  \
        .name = "device", .arg = "NAME",                                               \
        .help = "run on an accelerator: cuda, cuda:0, cuda:1... (default the CPU)",    \
        .kind = KIND_TEXT                                                              \
    }
#define OPTION_PRECISION                                                               \
    {                                                                                  \
        .name = "precision", .arg = "HOW",                                             \
        .help = "products of f32 tensors: strict (default), or fast, in bf16",         \
        .kind = KIND_WORD, .words = "strict|fast"                                      \
    }

struct args;

struct verb {
    const char *name;
    int (*run)(const struct args *args);       /* the exit status */
    const char          *summary;              /* one line, no full stop */
    const char          *usage;                /* "SPEC PROBLEM"; "" for none */
    int                  min_words, max_words; /* of usage; max -1: any number */
    const struct option *options;              /* up to one without name; NULL: none */
    const struct option *shared; /* further ones, of another verb; those above hide them */
    const char *const *examples; /* "foci plan softmax n4096d64", up to NULL */
    const char        *notes;    /* paragraphs below the options; NULL: none */
    const char *(*also)(void);   /* one more, made from a list; NULL: none */
};

struct given {
    const struct option *option;
    const char          *text;
    double               number; /* KIND_WHOLE, KIND_REAL; KIND_WORD: the index */
};

/* A parsed command line.  Texts are those of argv. */
struct args {
    const struct verb *verb;
    const char       **words; /* what is not an option, in order */
    int                n_words;
    struct given      *given; /* in order */
    int                n_given;
    bool               json, quiet, help;
};

/* Option number i of a verb, those of `shared` behind its own; NULL beyond the last. */
const struct option *verb_option(const struct verb *verb, int i);

extern const struct verb *const verbs[];          /* up to NULL */
extern const struct option      common_options[]; /* up to one without name */

/* The name must be in the verb's table; that is asserted.  Of an option given
 * several times and not `many` the last counts. */
bool        opt_flag(const struct args *a, const char *name);
const char *opt_text(const struct args *a, const char *name); /* NULL: not given */
int64_t     opt_int(const struct args *a, const char *name, int64_t preset);
double      opt_real(const struct args *a, const char *name, double preset);
int         opt_word(const struct args *a, const char *name, int preset);
/* Number i of an option that may be repeated; NULL beyond the last. */
const char *opt_nth(const struct args *a, const char *name, int i);

/* Parse argv[0..argc), which starts after the verb.  EXIT_OK, or EXIT_USAGE with
 * the message printed.  args_free() in both cases. */
int  args_parse(const struct verb *verb, int argc, char **argv, struct args *a);
void args_free(struct args *a);

void              help_verb(FILE *out, const struct verb *verb);
void              help_all(FILE *out);
extern const char about_texts[]; /* what a SPEC and a PROBLEM are, in a paragraph */

/* Pages in the language of man(7), and scripts that complete command lines. */
void man_verb(FILE *out, const struct verb *verb);
void man_all(FILE *out);
int  complete_bash(FILE *out);
int  complete_zsh(FILE *out);

/*
 * Messages: one line on stderr, "foci VERB: ...".
 */

/* A mistake in the command line; the result is EXIT_USAGE. */
int usage_error(const struct args *a, const char *format, ...) CLI_PRINTF(2, 3);

/* Something failed; the result is EXIT_FAILED. */
int failure(const struct args *a, const char *format, ...) CLI_PRINTF(2, 3);

/* A call of the library failed: print foci_errmsg(ctx), with `what` and a colon
 * before it unless NULL.  EXIT_USAGE if spec or problem are wrong, or not supported
 * together, else EXIT_FAILED. */
int library_error(const struct args *a, const foci_ctx *ctx, foci_status status,
                  const char *what);

/* A remark that is not a result; silent under --quiet. */
void note(const struct args *a, const char *format, ...) CLI_PRINTF(2, 3);

/* A job of n pieces, 0 where nobody knows how many: say that piece `done`, called `what`,
 * begins.  A bar with rate and time left on a terminal, from the third second on; a line
 * elsewhere. */
struct progress {
    const struct args *a;
    const char        *unit; /* "cases" */
    int64_t n, before;       /* before: done when this run began, which took no time */
    double  start, next;
    bool    terminal, drawn;
};
void progress_begin(struct progress *p, const struct args *a, const char *unit,
                    int64_t n);
void progress_at(struct progress *p, int64_t done, const char *what);
/* The same where pieces are many and short: `done` of them are.  From the third second on,
 * on a terminal the bar, elsewhere a line now and then. */
void progress_tick(struct progress *p, int64_t done, const char *what);
void progress_end(struct progress *p);

/* The nearest valid name of a misspelt one: offer every valid name, then read `best`, NULL
 * if none is near. */
struct guess {
    const char *word;
    const char *prefix; /* of names in the hint; NULL: none */
    const char *best;
    int         distance;
};
void guess_offer(struct guess *n, const char *name);
/* " (did you mean ...?)" or "", into text. */
const char *guess_hint(const struct guess *n, char *text, size_t cap);

/*
 * Common work
 */

/* A context with `threads` (0: the default), or NULL with the message printed. */
foci_ctx *open_ctx(const struct args *a, int threads);
/* The same of verbs with --device. */
foci_ctx *open_device_ctx(const struct args *a, int threads);

/* Set the default width of hidden states: that of all heads together. */
void assume_x(foci_problem *p);

/* Text of one of the library's functions that work as snprintf; to be freed. */
char *plan_text(int (*print)(const foci_plan *, char *, size_t), const foci_plan *plan);

/* Without memory the command ends, with one line and EXIT_FAILED.  No file is half
 * written then: files are written by the library, which needs memory before only. */
_Noreturn void no_memory(const char *what);

/* n * size zeroed bytes, 64-byte aligned, to be freed by free(); never NULL. */
void *need(size_t n, size_t size);

/* A list of n elements of that size that has room for one more: the list itself, or a longer
 * copy in its place, with *cap of them. */
void *need_one_more(void *list, size_t n, size_t *cap, size_t size);
/* What the system calls this processor; "" when it does not say. */
void cpu_model(char *out, size_t cap);

/* Bytes that can be had without other programs losing theirs, where the system tells;
 * INFINITY elsewhere. */
double memory_available(void);

/* Call once, at the start: without memory the command ends, as incomplete JSON would look
 * complete. */
void json_never_fails(void);

/* Seconds on a clock that only runs forward. */
double seconds(void);

/* The folder that a path leads to, to be freed. */
char *folder_of(const char *path);

/* Whether a file can be written.  Files are made beside their target, so its folder must take
 * them; what is there and is no regular file, such as /dev/null, is written to as it is.  A
 * file that may not be written is not replaced either.  EXIT_OK, or a status with the message
 * printed. */
int check_output(const struct args *a, const char *path);

/* Between hold and release a signal that would end the program waits, so that a set
 * of files is written whole or not at all. */
void catch_signals(void); /* once, at the start */
void hold_signals(void);
bool signal_waits(void); /* one came since */
int  signal_count(void); /* how many did */
void release_signals(void);

/*
 * Output
 */

/* Print, follow by a newline, and release it; for a verb's last line. */
int print_json(const struct args *a, json_t *value);

/* The lines of a text, as a list. */
json_t *json_lines(const char *text);

/* A table whose columns line up.  `columns` is copied: it has a letter for each, l or r for the
 * side its cells stand at.  Cells are added from left to right, row by row.  The first row
 * of table_headed() names the columns. */
struct output_table;
struct output_table *table_create(const char *columns);
struct output_table *table_headed(const char *columns);
void table_cell(struct output_table *t, const char *format, ...) CLI_PRINTF(2, 3);
/* A cell with a name, and the one beside it. */
void table_pair(struct output_table *t, const char *name, const char *format, ...)
    CLI_PRINTF(3, 4);
/* Within the width of a terminal, if `out` is one. */
void table_print(struct output_table *t, FILE *out);
void table_free(struct output_table *t);
void table_print_markdown(const struct output_table *t, FILE *out);
/* As a file of comma-separated values, as RFC 4180 has them. */
foci_status table_write_csv(foci_ctx *ctx, const struct output_table *t,
                            const char *path);

/* Characters of a line ($COLUMNS, or what the terminal says); 0: `out` is no terminal. */
int terminal_width(FILE *out);
/* Whether bold text shows as such: on a terminal that can, unless NO_COLOR is set. */
bool terminal_emphasis(FILE *out);

/* "1.23 G": three digits and a prefix of thousands, for rates and counts. */
const char *thousands(double x, char text[16]);

#endif
