/* compare_length_lines.c -- the results in --out, DIR/lengths.jsonl: a line of JSON for each
 * mechanism at each length, with the setting it was measured in.
 *
 * The file is written anew whenever results are added, so that it is whole at all times.
 * Lines of mechanisms and lengths that are not asked for now stay in it.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/compare_length.h"
#include "foci/file.h"

static const char *const passes[] = { "fwd", "bwd", "both", "step" };

static const char *level_of(const foci_ctx *ctx)
{
    const char *name, *state;

    for (int i = 0; (name = foci_cpu_level(ctx, i, &state)); i++)
        if (strcmp(state, "chosen") == 0) return name;
    return "";
}

json_t *length_setting(const struct lengths *w)
{
    const foci_problem *p = &w->problem;
    foci_device         device = { FOCI_SIZED(foci_device) };
    const bool          there = !foci_ctx_get_device(w->ctx, &device) && device.name;
    char                cpu[256];

    cpu_model(cpu, sizeof cpu);
    return json_pack("{s:s, s:s, s:i, s:s, s:I, s:I, s:b, s:s, s:s, s:s, s:s}",
                     "version", foci_version(), "level", level_of(w->ctx), "threads",
                     foci_ctx_threads(w->ctx), "device", there ? device.model : cpu,
                     "heads", (json_int_t)p->heads, "head_dim", (json_int_t)p->dim_qk,
                     "causal", (p->flags & FOCI_FLAG_CAUSAL) != 0, "dtype",
                     p->dtype == FOCI_BF16 ? "bf16" : "f32", "precision",
                     p->flags & FOCI_FLAG_FAST ? "fast" : "strict", "pass",
                     passes[w->pass], "data", "gaussian");
}

static void set_real(json_t *o, const char *name, double x)
{
    json_object_set_new(o, name, isfinite(x) ? json_real(x) : json_null());
}

json_t *length_json(const struct lengths *w, int spec, int i)
{
    const struct length_cell *c = length_cell(w, spec, i);
    json_t *o = json_pack("{s:s, s:I, s:s?}", "spec", w->specs[spec], "length",
                          (json_int_t)w->length[i], "skipped", c->skipped);

    if (!c->measured) return o;
    json_object_set_new(o, "rounds", json_integer(c->rounds));
    set_real(o, "seconds", c->seconds);
    set_real(o, "quartile1", c->low);
    set_real(o, "quartile3", c->high);
    set_real(o, "tokens_per_second", (double)length_tokens(w, i) / c->seconds);
    set_real(o, "flops", c->flops);
    set_real(o, "tensor_bytes", c->tensors);
    set_real(o, "work_bytes", c->work);
    set_real(o, "saved_bytes", c->saved);
    set_real(o, "state_bytes", c->state);
    set_real(o, "plan_bytes", c->plan);
    set_real(o, "memory_bytes", length_memory(c));
    set_real(o, "error", c->error);
    json_object_set_new(o, "untrained", json_boolean(c->untrained));
    return o;
}

/*
 * Reading
 */

/* A number that is there and no less than `least`. */
static bool read_real(const json_t *o, const char *name, double least, double *x)
{
    const json_t *value = json_object_get(o, name);

    *x = json_number_value(value);
    return json_is_number(value) && *x >= least;
}

static bool read_cell(const json_t *o, struct length_cell *c)
{
    double        rounds = 0;
    const json_t *error = json_object_get(o, "error");
    const bool    whole = read_real(o, "rounds", 1, &rounds) &&
                       read_real(o, "seconds", 1e-12, &c->seconds) &&
                       read_real(o, "quartile1", 0, &c->low) &&
                       read_real(o, "quartile3", 0, &c->high) &&
                       read_real(o, "flops", 0, &c->flops) &&
                       read_real(o, "tensor_bytes", 0, &c->tensors) &&
                       read_real(o, "work_bytes", 0, &c->work) &&
                       read_real(o, "saved_bytes", 0, &c->saved) &&
                       read_real(o, "state_bytes", 0, &c->state) &&
                       read_real(o, "plan_bytes", 0, &c->plan);

    if (!whole || (!json_is_number(error) && !json_is_null(error))) return false;
    c->rounds = (int)fmin(rounds, 1000);
    c->error = json_is_null(error) ? NAN : json_number_value(error);
    c->untrained = json_is_true(json_object_get(o, "untrained"));
    c->measured = c->kept = true;
    return true;
}

/* Refuse results of another setting: times side by side have to be comparable. */
static int check_setting(const struct lengths *w, const json_t *seen, int line)
{
    json_t     *mine = length_setting(w);
    const char *name;
    json_t     *value;
    int         code = EXIT_OK;

    json_object_foreach(mine, name, value)
    {
        const json_t *other = json_object_get(seen, name);
        if (code || json_equal(value, other)) continue;
        char *a = other ? json_dumps(other, JSON_ENCODE_ANY) : NULL;
        char *b = json_dumps(value, JSON_ENCODE_ANY);
        code = usage_error(w->a,
                           "%s, line %d: measured with %s %s, where it is %s now; give "
                           "the same options, or another --out",
                           w->path, line, name, a ? a : "unknown", b);
        free(a);
        free(b);
    }
    json_decref(mine);
    return code;
}

/* Where this run wants the result of the line; NULL: it does not. */
static struct length_cell *cell_of(const struct lengths *w, const json_t *o)
{
    const char      *spec = json_string_value(json_object_get(o, "spec"));
    const json_int_t length = json_integer_value(json_object_get(o, "length"));

    for (int s = 0; s < w->n_specs && spec; s++)
        for (int i = 0; i < w->n_lengths; i++)
            if (length == w->length[i] && strcmp(spec, w->specs[s]) == 0)
                return length_cell(w, s, i);
    return NULL;
}

static bool is_line(const json_t *o)
{
    return json_is_string(json_object_get(o, "spec")) &&
           json_is_integer(json_object_get(o, "length")) &&
           json_is_object(json_object_get(o, "setting"));
}

/* What was left out is tried once more. */
static int take_line(struct lengths *w, const char *text, size_t n, int line)
{
    json_error_t error;
    json_t      *o = json_loadb(text, n, 0, &error);
    int          code = EXIT_OK;

    if (!is_line(o)) {
        json_decref(o);
        return failure(w->a, "%s, line %d is no result of foci compare --length%s%s",
                       w->path, line, o ? "" : ": ", o ? "" : error.text);
    }
    struct length_cell *c = cell_of(w, o);
    const bool          left_out = json_is_string(json_object_get(o, "skipped"));
    code = check_setting(w, json_object_get(o, "setting"), line);
    if (!code && !left_out && c && !read_cell(o, c))
        code = failure(w->a, "%s, line %d: numbers are missing or out of range",
                       w->path, line);
    if (!code) json_array_append(w->lines, o);
    json_decref(o);
    return code;
}

static int read_lines(struct lengths *w, FILE *in)
{
    char  *text = NULL;
    size_t cap = 0;
    int    code = EXIT_OK;

    for (int line = 1; !code; line++) {
        errno = 0;
        const ssize_t n = getline(&text, &cap, in);
        if (n < 0) break;
        if (n > 1) code = take_line(w, text, (size_t)n, line);
    }
    if (!code && (ferror(in) || errno))
        code = failure(w->a, "%s: cannot be read: %s", w->path, strerror(errno));
    free(text);
    return code;
}

int length_lines_open(struct lengths *w)
{
    static const char name[] = "lengths.jsonl";
    const char *const folder = opt_text(w->a, "out");

    if (!folder && opt_flag(w->a, "resume"))
        return usage_error(w->a, "--resume needs --out, whose results it goes on with");
    if (!folder) return EXIT_OK;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return failure(w->a, "--out %s: cannot be made: %s", folder, strerror(errno));
    const size_t n = strlen(folder) + sizeof name + 1;
    w->path = need(n, 1);
    snprintf(w->path, n, "%s/%s", folder, name);
    w->lines = json_array();
    if (access(folder, W_OK | X_OK))
        return failure(w->a, "--out %s: cannot be written to: %s", folder,
                       strerror(errno));
    FILE *in = fopen(w->path, "r");
    if (!in)
        return errno == ENOENT ? EXIT_OK
                               : failure(w->a, "%s: cannot be opened: %s", w->path,
                                         strerror(errno));
    const int code =
        opt_flag(w->a, "resume")
            ? read_lines(w, in)
            : usage_error(w->a,
                          "%s is there already; --resume goes on with it, or give "
                          "another --out",
                          w->path);
    fclose(in);
    return code;
}

/*
 * Writing
 */

/* In place of a line of the same mechanism and length, or as the last one. */
static void put_line(struct lengths *w, json_t *line)
{
    const json_t *other;
    size_t        at;

    json_array_foreach(w->lines, at, other)
    {
        if (json_equal(json_object_get(other, "spec"), json_object_get(line, "spec")) &&
            json_equal(json_object_get(other, "length"),
                       json_object_get(line, "length"))) {
            json_array_set_new(w->lines, at, line);
            return;
        }
    }
    json_array_append_new(w->lines, line);
}

/* All lines as one text, to be freed. */
static char *lines_text(const struct lengths *w)
{
    char         *text = need(1, 1);
    size_t        n = 0, cap = 1, at;
    const json_t *line;

    json_array_foreach(w->lines, at, line)
    {
        char        *one = json_dumps(line, JSON_REAL_PRECISION(9));
        const size_t len = strlen(one);
        if (n + len + 2 > cap) {
            cap = 2 * (n + len + 2);
            char *more = need(cap, 1);
            memcpy(more, text, n);
            free(text);
            text = more;
        }
        memcpy(text + n, one, len);
        n += len;
        text[n++] = '\n';
        text[n] = '\0';
        free(one);
    }
    return text;
}

int length_lines_write(struct lengths *w, int i)
{
    if (!w->path) return EXIT_OK;
    for (int spec = 0; spec < w->n_specs; spec++) {
        struct length_cell *c = length_cell(w, spec, i);
        if (c->kept || (!c->measured && !c->skipped)) continue;
        json_t *line = length_json(w, spec, i);
        json_object_set_new(line, "setting", length_setting(w));
        put_line(w, line);
        c->kept = true;
    }
    char *text = lines_text(w);
    hold_signals();
    const foci_status status = foci_file_write(w->judge, w->path, text, strlen(text));
    release_signals();
    free(text);
    return status ? library_error(w->a, w->judge, status, NULL) : EXIT_OK;
}
