/* comparison.h -- what the parts of `foci compare` and `foci report` share.
 *
 * A comparison is a folder:
 *
 *     compare.json          its definition: arms, options, seeds, grids
 *     results*.jsonl        one line for each thing that ended (compare_results.c)
 *     runs/ID/              the model of a run, and the log of its training
 *     lock                  held by the runner and by its children
 *
 * Words: an arm is a set of options of `foci train`; a run is one arm with one seed, one
 * number of examples and one choice of the tuned options.  A run is a child process, this
 * same program: a crash costs one run, its memory is its own, and its command line can be
 * repeated by hand.
 *
 *     compare_given.c    the definition, as the command line gives it
 *     compare_data.c     files of a folder of data
 *     compare_define.c   completed, and together with that of a folder
 *     compare_folder.c   locks; the definition of a folder joins the one given
 *     compare_arms.c     arms, and an axis along an argument of their specs
 *     compare_plan.c     the list of runs, in order, and what tuning chose
 *     compare_child.c    child processes, some at a time
 *     compare_words.c    their command lines
 *     compare_run.c      what is done for each run, and its line of results
 *     compare_measure.c  whether arms can, what they cost, the test set
 *     compare_results.c  the journal of results
 *     compare_judge.c    statistics of finished runs
 *     compare_sentences.c   statistics over the examples of a test set
 *     compare_table.c    tables
 *     compare_dry.c      the list of runs and their time
 */
#ifndef FOCI_CLI_COMPARISON_H
#define FOCI_CLI_COMPARISON_H

#include "cli/cli.h"

/* JSON as it is read in comments: {"name": text, "options": {"lr": "0.1"}}.  Options of
 * `foci train` are always an object from their names to their texts; flags are true. */

struct comparison {
    const struct args *a;
    foci_ctx          *ctx;
    const char        *out;
    json_t            *definition;  /* compare.json */
    json_t            *arms;        /* [{"name", "options"}], an axis written out */
    json_t            *results;     /* as results_create() */
    char               journal[64]; /* the file in `out` that this process appends to */
    int                part, parts; /* 0 of 1 without --part */
    int                jobs, threads; /* children at once, and the threads of each */
    double             until;         /* seconds() by which runs are to end; 0: any */
    int                locks[2];      /* files that are locked */
    json_t            *tried;         /* runs that --retry began again, by id */
};

/*
 * compare_given.c
 */

/* What the command line says, and nothing else; NULL with the message printed. */
json_t *definition_read(const struct args *a);

/*
 * compare_define.c
 */

/* Fill in what was left out, and check that the whole makes sense. */
int definition_complete(const struct args *a, foci_ctx *ctx, json_t *definition);

/* Add what `given` has to `definition`, which came from `where`: arms and seeds; anything
 * else has to be the same.  *changed: something was added. */
int definition_merge(const struct args *a, json_t *definition, const json_t *given,
                     const char *where, bool *changed);

/* The definition in a folder; NULL without it, and then *code is EXIT_OK where there is
 * none and EXIT_FAILED, with the message printed, where it cannot be read. */
json_t *definition_load(const struct args *a, const char *folder, int *code);

/* How quality is measured. */
struct compare_metric {
    const char *key;    /* in the result of foci eval */
    const char *name;   /* in tables */
    const char *unit;   /* of margins and differences */
    double      scale;  /* values times this are shown */
    double      margin; /* preset, in `unit` */
    bool        lower;  /* is better */
    bool        ratio;  /* differences are ratios, in percent */
    int         digits;
};
/* By its key; NULL: there is none.  compare_metric_list() has all keys, for messages. */
const struct compare_metric *compare_metric_find(const char *key);
const struct compare_metric *compare_metric_of(const json_t *definition);
const char                  *compare_metric_list(void);

/* The most points of a grid of --tune. */
enum { COMPARE_POINTS = 10000 };

/* compare_data.c: where --data is a folder, its files are what models are trained, validated and
 * tested by.  EXIT_OK, or a status with the message printed. */
int compare_take_folder(const struct args *a, json_t *definition);

/* compare_preset.c: write the preset of the generator that options name out among them. */
int compare_take_preset(const struct args *a, json_t *options);

/* Text printed into memory of its own; never NULL. */
char *compare_text(const char *format, ...) CLI_PRINTF(1, 2);

/* A string of JSON; of text that is not UTF-8 all but ASCII is replaced by '?'. */
json_t *compare_string(const char *text);

/* A name of something temporary as mkstemp() and mkdtemp() complete it, where TMPDIR says; to be
 * freed. */
char *temporary_name(void);

/* What an object has by that name: NAN if it is no number, "" if it is no text. */
double      field_real(const json_t *o, const char *key);
const char *field_text(const json_t *o, const char *key);

/* The option as {name: text}; JSON has UTF-8 only, and other text is refused.  EXIT_OK, or
 * EXIT_USAGE with the message printed. */
int compare_set_option(const struct args *a, json_t *options, const struct given *g);

/*
 * compare_folder.c
 */

/* Lock c->out, read its results, and bring its definition and what is given together in
 * c->definition and c->arms; a folder that is not there is made.  With --dry-run nothing is
 * written.  EXIT_OK, or a status with the message printed; close in both cases. */
int  compare_folder_open(struct comparison *c, const json_t *given);
void compare_folder_close(struct comparison *c);

/* Read the results once more, with those of other parts. */
int compare_folder_read(struct comparison *c);

/*
 * compare_arms.c
 */

/* Arms of --attention and --arm, in order; NULL with the message printed. */
json_t *arms_read(const struct args *a);

/* The arms of a definition with its axis written out, each value an arm of its own; NULL
 * with the message printed. */
json_t *arms_expand(const struct args *a, foci_ctx *ctx, const json_t *definition);

/* Options that belong to the comparison as a whole, not to one arm. */
bool arms_may_have(const char *option);

/*
 * compare_plan.c: runs are {"id", "arm", "seed", "examples", "values", "options", "owner"}
 */

/* The runs by which options are tuned; empty without --tune. */
json_t *plan_tuning(const struct comparison *c);

/* The runs whose results are compared; of a grid, those with the values chosen.  *complete:
 * tuning is over, so none is missing. */
json_t *plan_runs(const struct comparison *c, bool *complete);

/* The combinations of tuned values, each an object; one empty one without --tune. */
json_t *plan_grid(const json_t *definition);

/* What tuning chose for an arm: an index of the grid, and in mean[] what each point reached on
 * validation (NAN: failed or not done); -1: not all points are done. */
int plan_choice(const struct comparison *c, const json_t *arm, int64_t examples,
                const json_t *grid, double *mean);

/* The run of an arm, to be released. */
json_t *plan_run(const struct comparison *c, const json_t *arm, int64_t seed,
                 int64_t examples, const json_t *values);

/* The run by which an arm is tried, to be released, and whether the arm can do the task, as
 * far as that was tried. */
json_t *plan_check(const struct comparison *c, const json_t *arm);
bool    plan_is_able(const struct comparison *c, const json_t *arm);

/*
 * compare_child.c
 */

struct compare_child {
    bool                  busy;
    void                 *user;
    int64_t               peak_bytes;
    double                start, seconds;
    int                   status;   /* as wait() gives it */
    int                   ended_by; /* a signal; 0: none */
    char                 *out;      /* its standard output, up to a zero */
    char                 *err;      /* the last line of its standard error */
    struct child_process *process;
};

struct compare_children {
    const struct args    *a;
    int                   n, busy;
    struct compare_child *all;
    int                   told; /* signals that were passed on */
};

/* Room for n children. */
void children_create(struct compare_children *s, const struct args *a, int n);
void children_free(struct compare_children *s);

/* Start this program with the words of a list, which begin with the verb.  EXIT_OK, or
 * EXIT_FAILED with the message printed. */
int children_start(struct compare_children *s, const json_t *words, void *user);

/* Wait for at most some tenths of a second.  A child that has ended, whose place
 * children_release() gives back; NULL: none has.  Signals that came are passed on: the first
 * lets children end in good order, a second one ends them. */
struct compare_child *children_wait(struct compare_children *s);
void children_release(struct compare_children *s, struct compare_child *k);

/* Run one child and wait for it; false: it was interrupted, or could not be started.  The
 * caller frees out and err. */
bool children_run(const struct args *a, const json_t *words,
                  struct compare_child *ended);

/* What a child printed, if it went well, to be released; or why it failed, to be freed. */
json_t *children_result(const struct compare_child *k);
char   *children_reason(const struct compare_child *k);
/* Somebody asked it to end: this is no failure of its own. */
bool children_were_stopped(const struct compare_child *k);

/* A word so that a shell reads it as it is, in quotes where it has to be; to be freed. */
char *shell_word(const char *word);

/* The words as a shell would read them, with "foci" in front; to be freed. */
char *children_command(const json_t *words);

/*
 * compare_run.c: each goes on until all is done or a signal came; EXIT_OK, or a status with
 * the message printed.
 */

/* Do those of the list that are not done. */
int runs_do(struct comparison *c, const json_t *list);

/* Whether a run belongs to this part. */
bool run_is_own(const struct comparison *c, const json_t *run);

/* The validations in the log of a run, [[step, loss, valid_loss, valid_accuracy]]. */
json_t *run_curve(const char *folder);

/* Runs of the list without a result, of all parts. */
int64_t runs_missing(const struct comparison *c, const json_t *list);

/*
 * compare_measure.c: as runs_do()
 */

/* Try which arms can do the task. */
int runs_check(struct comparison *c);

/* What the finished runs of a list cost, one of each arm, and what they reach on the test
 * set; of this part. */
int runs_measure(struct comparison *c, const json_t *list);
int runs_test(struct comparison *c, const json_t *list);

/*
 * compare_words.c: command lines without "foci", as lists to be released
 */

/* The words up to a NULL; and more behind them. */
json_t *words_create(const char *word, ...);
void    words_add_options(json_t *words, const json_t *options);
void    words_add_common(const struct comparison *c, json_t *words);

/* To train a run in `folder`, which is gone on with where `on`; to judge it by validation, and
 * by the test set. */
json_t *run_train_words(const struct comparison *c, const json_t *run,
                        const char *folder, bool on);
json_t *run_eval_words(const struct comparison *c, const char *folder);
json_t *run_test_words(const struct comparison *c, const char *folder);

/* Whether there is a test set. */
bool runs_have_test(const struct comparison *c);

/* The folder of a run, to be freed, and whether it has a file. */
char *run_folder(const struct comparison *c, const json_t *run);
bool  run_has_file(const char *folder, const char *name);

/*
 * compare_dry.c
 */

/* --dry-run: the list of runs, with an estimate of the time. */
int runs_print(struct comparison *c);

/*
 * compare_results.c
 */

/* {"runs": {id: record}, "tests": ..., "costs": ..., "checks": {key: record}} */
json_t *results_create(void);

/* Add what the files results*.jsonl of a folder say.  *version: the only one whose results
 * are taken; NULL: that of the first result, which is put there (and outlives `results`).
 * Of the file `own` (NULL: none) the end is cut off if its last line is torn. */
int results_load(const struct args *a, json_t *results, const char *folder,
                 const char *own, const char **version);

/* Append a record to the journal and to c->results, which takes it over. */
int results_append(struct comparison *c, json_t *record);

/* The beginning of a record: what it is about, when and where. */
json_t *results_record(const char *kind, const char *id, const char *status);

/* The record of a run, a test ...: "runs", "tests", "costs", "checks"; NULL: none. */
const json_t *results_get(const json_t *results, const char *sort, const char *id);

/*
 * compare_judge.c, compare_table.c
 */

/* compare_sentences.c: tests over the examples of a test set, of two arms of which these are
 * the files of --outputs, of as many seeds; "sentences" of `to`, if the files are there. */
foci_status sentences_judge(foci_ctx *ctx, const struct compare_metric *m,
                            const json_t *a, const json_t *b, json_t *to);

/* All that tables show, as JSON (docs/comparing.md); NULL with the message printed. */
json_t *judge(const struct comparison *c);

/* {"head": lines, "tables": [{"columns": as table_create(), "cells": texts row by row, the names
 * of columns first}], "rest": lines}: quality, costs and, with --tune, what it found. */
json_t *tables_of_comparison(const json_t *summary);

/* Print it, and release it: tables, --markdown or --json. */
int table_of_comparison(const struct args *a, json_t *summary, bool markdown);

#endif
