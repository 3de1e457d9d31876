/* tokenizer_lines.c -- foci tokenizer encode and decode: line by line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gzip.h"
#include "cli/tokenizer.h"

/* What is done to lines, many at a time. */
struct lines_job {
    const struct args    *a;
    foci_ctx             *ctx;
    const foci_tokenizer *t;
    foci_encoder         *encoder;
    int64_t               n_lines; /* so far */
    json_t               *list;    /* NULL without --json */
    int (*work)(struct lines_job *job, const foci_string *lines, int64_t n);
};

/*
 * Lines of options and of files
 */

struct line_list {
    foci_string *at; /* [cap] */
    int64_t      n, cap;
};

static void add_line(struct line_list *l, const char *text, int64_t bytes)
{
    if (l->n == l->cap) {
        const int64_t cap = l->cap ? 2 * l->cap : 64;
        foci_string  *more = need((size_t)cap, sizeof *more);
        if (l->n) memcpy(more, l->at, (size_t)l->n * sizeof *more);
        free(l->at);
        l->at = more;
        l->cap = cap;
    }
    l->at[l->n++] = (foci_string){ text, bytes };
}

/* Text of a file that is not worked on yet. */
struct lines_block {
    char   *text;
    int64_t used, cap;
};

/* Work on the lines in a block; what follows the last end of a line stays in it, unless
 * the file ends there. */
static int work_block(struct lines_job *job, struct lines_block *b, bool at_end)
{
    struct line_list l = { 0 };
    int64_t          start = 0;

    for (int64_t i = 0; i < b->used; i++) {
        if (b->text[i] != '\n') continue;
        add_line(&l, b->text + start, i - start);
        start = i + 1;
    }
    if (at_end && start < b->used) {
        add_line(&l, b->text + start, b->used - start);
        start = b->used;
    }
    const int code = l.n ? job->work(job, l.at, l.n) : EXIT_OK;
    free(l.at);
    memmove(b->text, b->text + start, (size_t)(b->used - start));
    b->used -= start;
    return code;
}

static void reserve(struct lines_block *b)
{
    enum { BLOCK = 1 << 22 };
    const int64_t cap = b->cap ? 2 * b->cap : BLOCK;

    if (b->used < b->cap) return;
    char *text = need((size_t)cap, 1);
    if (b->used) memcpy(text, b->text, (size_t)b->used);
    free(b->text);
    b->text = text;
    b->cap = cap;
}

static int work_reader(struct lines_job *job, const foci_reader *r)
{
    struct lines_block b = { 0 };
    int                code = EXIT_OK;

    for (int64_t n = 1; n > 0 && !code;) {
        reserve(&b);
        n = r->read(r->user, b.text + b.used, b.cap - b.used);
        if (n < 0)
            code =
                failure(job->a, "%s: cannot be read: %s", r->name, r->error(r->user));
        else
            b.used += n;
        if (!code && (n == 0 || b.used == b.cap)) code = work_block(job, &b, n == 0);
    }
    free(b.text);
    return code;
}

static int work_file(struct lines_job *job, const char *path)
{
    foci_reader reader;
    const char *why = gzip_open(path, &reader);

    if (why) return failure(job->a, "%s: cannot be read: %s", path, why);
    const int code = work_reader(job, &reader);
    foci_reader_close(&reader);
    return code;
}

/* Texts of an option, or else the lines of files. */
static int work_all(struct lines_job *job, const char *option)
{
    struct line_list l = { 0 };
    const char      *text;
    int              code = EXIT_OK, i = 0;

    for (; (text = opt_nth(job->a, option, i)); i++)
        add_line(&l, text, (int64_t)strlen(text));
    if (i && opt_nth(job->a, "data", 0))
        code = usage_error(job->a, "--%s and --data exclude each other", option);
    else if (i)
        code = job->work(job, l.at, l.n);
    for (i = 0; !l.n && !code && (text = opt_nth(job->a, "data", i)); i++)
        code = work_file(job, text);
    if (!l.n && !code && i == 0) code = work_file(job, "-");
    free(l.at);
    return code;
}

/*
 * encode
 */

static json_t *json_line(const struct lines_job *job, const int32_t *ids,
                         const int32_t *words, int64_t n)
{
    json_t *list = json_array(), *texts = json_array(), *in = json_array();

    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(list, json_integer(ids[i]));
        json_array_append_new(texts, token_json(job->t, ids[i]));
        json_array_append_new(in, json_integer(words[i]));
    }
    return json_pack("{s:o, s:o, s:o}", "ids", list, "tokens", texts, "words", in);
}

/* "12 7 3"; texts of tokens in brackets, so that blanks are seen. */
static void print_line(const struct lines_job *job, const int32_t *ids,
                       const int32_t *words, int64_t n)
{
    const bool tokens = opt_flag(job->a, "tokens"), in = opt_flag(job->a, "words");

    for (int64_t i = 0; i < n; i++) {
        printf("%s%d", i ? " " : "", (int)ids[i]);
        if (tokens) {
            putchar('[');
            token_print(job->t, ids[i]);
            putchar(']');
        }
        if (in) printf("@%d", (int)words[i]);
    }
    putchar('\n');
}

static int encode_lines(struct lines_job *job, const foci_string *lines, int64_t n)
{
    const unsigned flags = opt_flag(job->a, "plain") ? FOCI_ENCODE_PLAIN : 0;
    const int64_t  most = foci_encoder_most(job->encoder, lines, n);
    int32_t       *ids = need((size_t)most, sizeof *ids);
    int32_t       *words = need((size_t)most, sizeof *words);
    int64_t       *offsets = need((size_t)n + 1, sizeof *offsets);

    const foci_status status =
        foci_encode(job->encoder, lines, n, flags, ids, most, offsets);
    for (int64_t i = 0; i < n && !status; i++) {
        const int32_t  *line = ids + offsets[i];
        const int64_t   len = offsets[i + 1] - offsets[i];
        foci_word_state state = { FOCI_SIZED(foci_word_state) };
        (void)foci_token_words(job->t, line, len, &state, words); /* its own ids */
        if (job->list)
            json_array_append_new(job->list, json_line(job, line, words, len));
        else
            print_line(job, line, words, len);
    }
    free(ids);
    free(words);
    free(offsets);
    return status ? failure(job->a, "%s", foci_errmsg(job->ctx)) : EXIT_OK;
}

static int run_job(struct lines_job *job, const char *option)
{
    if (job->a->json) job->list = json_array();
    const int code = work_all(job, option);
    if (code || !job->list) {
        json_decref(job->list);
        return code;
    }
    return print_json(job->a, json_pack("{s:o}", "lines", job->list));
}

int tokenizer_encode(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t)
{
    struct lines_job job = { .a = a, .ctx = ctx, .t = t, .work = encode_lines };

    if (foci_encoder_create(t, &job.encoder)) return failure(a, "%s", foci_errmsg(ctx));
    const int code = run_job(&job, "text");
    foci_encoder_free(job.encoder);
    return code;
}

/*
 * decode
 */

/* The next id of a line: 1, 0 at its end, -1 for what is none. */
static int next_id(const char **p, const char *end, int32_t *id)
{
    int64_t n = 0;

    while (*p < end && (**p == ' ' || **p == '\t' || **p == '\r'))
        ++*p;
    if (*p == end) return 0;
    const char *start = *p;
    for (; *p < end && **p >= '0' && **p <= '9' && n < INT32_MAX; ++*p)
        n = 10 * n + (**p - '0');
    if (*p == start || n > INT32_MAX || (*p < end && !strchr(" \t\r", **p))) return -1;
    *id = (int32_t)n;
    return 1;
}

static int read_ids(const struct lines_job *job, const foci_string *line, int32_t *ids,
                    int64_t *n)
{
    const char *p = line->text, *end = p + line->bytes;
    int         seen;

    for (*n = 0; (seen = next_id(&p, end, &ids[*n])) > 0; ++*n)
        ;
    if (seen == 0) return EXIT_OK;
    return failure(job->a,
                   "line %lld: what stands at '%.*s' is no id; ids are whole numbers "
                   "from 0, separated by blanks",
                   (long long)job->n_lines, (int)(end - p < 20 ? end - p : 20), p);
}

static int decode_line(struct lines_job *job, const int32_t *ids, int64_t n)
{
    const unsigned flags = FOCI_DECODE_END | (job->list ? FOCI_DECODE_REPLACE : 0) |
                           (opt_flag(job->a, "special") ? FOCI_DECODE_SPECIALS : 0);
    foci_decoder d = { FOCI_SIZED(foci_decoder) }, again = d;
    int64_t      bytes = 0;

    if (foci_decode(job->t, &d, ids, n, flags, NULL, 0, &bytes))
        return failure(job->a, "line %lld: %s", (long long)job->n_lines,
                       foci_errmsg(job->ctx));
    char *text = need((size_t)bytes + 1, 1);
    (void)foci_decode(job->t, &again, ids, n, flags, text, bytes, &bytes);
    if (job->list) {
        json_array_append_new(job->list, json_stringn(text, (size_t)bytes));
    } else {
        fwrite(text, 1, (size_t)bytes, stdout);
        putchar('\n');
    }
    free(text);
    return EXIT_OK;
}

static int decode_lines(struct lines_job *job, const foci_string *lines, int64_t n)
{
    int code = EXIT_OK;

    for (int64_t i = 0; i < n && !code; i++) {
        int32_t *ids = need((size_t)lines[i].bytes / 2 + 2, sizeof *ids);
        int64_t  len;
        job->n_lines++;
        code = read_ids(job, &lines[i], ids, &len);
        if (!code) code = decode_line(job, ids, len);
        free(ids);
    }
    return code;
}

int tokenizer_decode(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t)
{
    struct lines_job job = { .a = a, .ctx = ctx, .t = t, .work = decode_lines };
    return run_job(&job, "ids");
}
