/* compare_folder.c -- the folder of a comparison: who works in it, and what it is about. */
#define _DEFAULT_SOURCE /* flock() */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/comparison.h"
#include "foci/file.h"

/*
 * Locks: several processes may do parts; one alone does the whole.  Children have the files
 * open too, so that what a runner left behind keeps others away while it lives.
 */

static int open_lock(struct comparison *c, int i, const char *name, int how)
{
    enum { TRIES = 60 }; /* children of a runner that was killed take a moment */
    const struct timespec wait = { .tv_nsec = 50000000 };
    char                 *path = compare_text("%s/%s", c->out, name);

    c->locks[i] = open(path, O_RDWR | O_CREAT, 0666);
    int code = c->locks[i] < 0
                   ? failure(c->a, "%s: cannot be opened: %s", path, strerror(errno))
                   : EXIT_OK;
    free(path);
    for (int t = 0; !code && flock(c->locks[i], how | LOCK_NB); t++) {
        if (t == TRIES)
            return failure(c->a,
                           "another foci compare is at work in %s; spread runs over "
                           "several by --part",
                           c->out);
        nanosleep(&wait, NULL);
    }
    return code;
}

static int lock(struct comparison *c)
{
    char name[64];

    if (c->parts == 1) return open_lock(c, 0, "lock", LOCK_EX);
    snprintf(name, sizeof name, "lock.%d-of-%d", c->part + 1, c->parts);
    const int code = open_lock(c, 0, "lock", LOCK_SH);
    return code ? code : open_lock(c, 1, name, LOCK_EX);
}

void compare_folder_close(struct comparison *c)
{
    for (int i = 0; i < 2; i++)
        if (c->locks[i] >= 0) close(c->locks[i]);
}

/*
 * The definition
 */

/* With `first` only where there is none: of parts that begin at once one writes it, as a link
 * is made once. */
static int write_definition(struct comparison *c, const json_t *definition, bool first)
{
    char *path = compare_text("%s/compare.json", c->out);
    char *own = compare_text("%s/compare.json.%ld", c->out, (long)getpid());
    char *text = json_dumps(definition, JSON_INDENT(2));
    char *lines = compare_text("%s\n", text);

    const foci_status status =
        foci_file_write(c->ctx, first ? own : path, lines, strlen(lines));
    int code = status ? library_error(c->a, c->ctx, status, NULL) : EXIT_OK;
    if (!code && first) {
        if (link(own, path) && errno != EEXIST)
            code = failure(c->a, "%s: cannot be written: %s", path, strerror(errno));
        (void)unlink(own);
    }
    free(lines);
    free(text);
    free(own);
    free(path);
    return code;
}

/* The definition is what this process works by: its arms, one of which is the baseline.
 * Takes the definition over. */
static int use(struct comparison *c, json_t *definition)
{
    const json_t *name = json_object_get(definition, "baseline");
    size_t        i;
    json_t       *arm;

    json_decref(c->definition);
    json_decref(c->arms);
    c->definition = definition;
    c->arms = arms_expand(c->a, c->ctx, definition);
    if (!c->arms) return EXIT_USAGE;
    json_array_foreach(c->arms, i, arm)
    {
        if (json_equal(json_object_get(arm, "name"), (json_t *)name) ||
            json_equal(json_object_get(arm, "base"), (json_t *)name))
            return EXIT_OK;
    }
    return usage_error(c->a, "--baseline is '%s', and no arm has this name",
                       json_string_value(name));
}

/* What is given, whole and checked, is the definition. */
static int use_given(struct comparison *c, const json_t *given)
{
    json_t *whole = json_deep_copy(given);

    const int code = definition_complete(c->a, c->ctx, whole);
    if (!code) return use(c, whole);
    json_decref(whole);
    return code;
}

/* What is given may add to the definition that was found, which is taken over. */
static int use_both(struct comparison *c, json_t *stored, const json_t *given)
{
    bool changed = false;

    int code = definition_merge(c->a, stored, given, c->out, &changed);
    if (code) {
        json_decref(stored);
        return code;
    }
    if ((code = use(c, stored)) || !changed || opt_flag(c->a, "dry-run")) return code;
    if (c->parts > 1)
        return usage_error(
            c->a, "%s has fewer arms or seeds: add them once without --part", c->out);
    return write_definition(c, c->definition, false);
}

/*
 * Opening
 */

int compare_folder_read(struct comparison *c)
{
    const char *version = foci_version();
    const bool  dry = opt_flag(c->a, "dry-run");

    return results_load(c->a, c->results, c->out, dry ? NULL : c->journal, &version);
}

/* Whether something was done here; with a part, by this part. */
static bool has_results(const struct comparison *c)
{
    return c->parts == 1 ? json_object_size(json_object_get(c->results, "runs")) > 0
                         : run_has_file(c->out, c->journal);
}

/* A folder without a definition gets one, after that was checked. */
static int begin(struct comparison *c, const json_t *given)
{
    const bool arms = json_array_size(json_object_get(given, "arms")) > 0;

    if (opt_flag(c->a, "resume") && !arms)
        return failure(c->a, "%s has no comparison to go on with", c->out);
    int code = use_given(c, given);
    if (code || opt_flag(c->a, "dry-run")) return code;
    if (mkdir(c->out, 0777) && errno != EEXIST)
        return failure(c->a, "%s: cannot be made: %s", c->out, strerror(errno));
    return EXIT_OK;
}

/* The folder is ours: its definition and its results, with what is given. */
static int go_on(struct comparison *c, json_t *stored, const json_t *given)
{
    const bool dry = opt_flag(c->a, "dry-run"), resume = opt_flag(c->a, "resume");
    int        code = compare_folder_read(c);

    if (!code && !dry && !resume && has_results(c))
        code = failure(c->a,
                       "%s has a comparison already: --resume goes on with it, another "
                       "--out begins anew",
                       c->out);
    if (!code && (dry || resume || c->parts > 1)) return use_both(c, stored, given);
    json_decref(stored);
    if (!code) code = use_given(c, given); /* nothing was done by another definition */
    return code ? code : write_definition(c, c->definition, false);
}

int compare_folder_open(struct comparison *c, const json_t *given)
{
    const bool dry = opt_flag(c->a, "dry-run");
    int        code;
    json_t    *stored = definition_load(c->a, c->out, &code);

    if (!code && !stored) code = begin(c, given);
    if (code || (dry && !stored)) return code;
    if (dry) return go_on(c, stored, given);
    json_decref(stored);
    if ((code = lock(c))) return code;
    if (c->definition && (code = write_definition(c, c->definition, true))) return code;
    stored = definition_load(c->a, c->out, &code);
    return stored ? go_on(c, stored, given) : code ? code : EXIT_FAILED;
}
