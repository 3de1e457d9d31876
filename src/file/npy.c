/* npy.c -- read NumPy's .npy files, versions 1 to 3.
 *
 *     "\x93NUMPY" major minor length header data
 *
 * `length` has 2 bytes in version 1 and 4 later, least first.  The header is a
 * Python dictionary with exactly the keys descr, fortran_order and shape; nothing
 * else of Python is understood.  The data must fill the file: fewer bytes mean a
 * truncated file, more mean that the shape is not that of the data.
 *
 * NumPy, numpy.lib.format, "Format Version 1.0" to "3.0".
 */
#include <string.h>

#include "file/format.h"

struct npy_text { /* what is left of the header */
    const char *p, *end;
};

static void skip_blanks(struct npy_text *t)
{
    while (t->p < t->end && strchr(" \t\r\n", *t->p) && *t->p)
        t->p++;
}

/* The next character that is no blank, taken if it is c. */
static bool take(struct npy_text *t, char c)
{
    skip_blanks(t);
    if (t->p == t->end || *t->p != c) return false;
    t->p++;
    return true;
}

static bool take_word(struct npy_text *t, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(t);
    if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0) return false;
    t->p += n;
    return true;
}

/* A quoted string without escapes, shorter than cap. */
static bool take_string(struct npy_text *t, char *out, size_t cap)
{
    skip_blanks(t);
    if (t->p == t->end || (*t->p != '\'' && *t->p != '"')) return false;
    const char quote = *t->p++;
    size_t     n = 0;
    while (t->p < t->end && *t->p != quote) {
        const char c = *t->p++;
        if (c < ' ' || c > '~' || c == '\\' || n + 1 >= cap) return false;
        out[n++] = c;
    }
    if (t->p == t->end) return false;
    t->p++;
    out[n] = '\0';
    return true;
}

/* A decimal without sign or leading zero; Python 2 wrote an L behind it. */
static bool take_length(struct npy_text *t, int64_t *out)
{
    skip_blanks(t);
    const char *first = t->p;
    int64_t     n = 0;
    while (t->p < t->end && *t->p >= '0' && *t->p <= '9') {
        const int digit = *t->p - '0';
        if (n > (INT64_MAX - digit) / 10) return false;
        n = 10 * n + digit;
        t->p++;
    }
    if (t->p == first || (*first == '0' && t->p - first > 1)) return false;
    if (t->p < t->end && *t->p == 'L') t->p++;
    *out = n;
    return true;
}

/* "()", "(3,)", "(3, 4)", "(3, 4,)"; a lone "(3)" is a number to Python. */
static const char *take_shape(struct npy_text *t, foci_array *a)
{
    static const char *const bad = "shape is not a tuple of lengths such as (2, 3)";
    bool                     comma = true;

    if (!take(t, '(')) return bad;
    while (!take(t, ')')) {
        if (!comma) return bad;
        if (a->n_dims == FOCI_MAX_DIMS) return "shape has more than 8 axes";
        if (!take_length(t, &a->shape[a->n_dims++]))
            return "shape has a length that is not a whole number from 0 to 2^63-1";
        comma = take(t, ',');
    }
    return a->n_dims == 1 && !comma ? bad : NULL;
}

struct descr {
    const char  code[3];
    foci_eltype type;
};

static bool find_descr(const char *text, foci_array *a)
{
    static const struct descr known[] = {
        { "b1", FOCI_ELTYPE_BOOL }, { "i1", FOCI_ELTYPE_I8 },
        { "u1", FOCI_ELTYPE_U8 },   { "i2", FOCI_ELTYPE_I16 },
        { "u2", FOCI_ELTYPE_U16 },  { "i4", FOCI_ELTYPE_I32 },
        { "u4", FOCI_ELTYPE_U32 },  { "i8", FOCI_ELTYPE_I64 },
        { "u8", FOCI_ELTYPE_U64 },  { "f2", FOCI_ELTYPE_F16 },
        { "f4", FOCI_ELTYPE_F32 },  { "f8", FOCI_ELTYPE_F64 },
    };

    if (strlen(text) != 3 || !strchr("<>=|", text[0])) return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text + 1, known[i].code) != 0) continue;
        a->type = known[i].type;
        if (eltype_bytes(a->type) == 1) return true;
        a->swapped = text[0] == (host_is_little() ? '>' : '<');
        return text[0] != '|';
    }
    return false;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL_KEYS = 7 };

/* One "key: value"; what is wrong with it, or NULL.  `seen` collects the keys. */
static foci_status take_item(struct foci_file *f, struct npy_text *t, foci_array *a,
                             unsigned *seen)
{
    char     key[16], descr[32];
    unsigned bit = 0;

    if (take_string(t, key, sizeof key))
        bit = strcmp(key, "descr") == 0           ? DESCR
              : strcmp(key, "fortran_order") == 0 ? ORDER
              : strcmp(key, "shape") == 0         ? SHAPE
                                                  : 0;
    if (!bit || !take(t, ':'))
        return file_fail(f->ctx, f->path,
                         "the header is not a dictionary of descr, fortran_order "
                         "and shape");
    if (*seen & bit) return file_fail(f->ctx, f->path, "%s is given twice", key);
    *seen |= bit;

    if (bit == DESCR) {
        if (!take_string(t, descr, sizeof descr))
            return file_fail(f->ctx, f->path,
                             "descr is not the name of one type; accepted are f2 f4 "
                             "f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 after < or >");
        if (!find_descr(descr, a))
            return file_fail(f->ctx, f->path,
                             "descr is '%s'; accepted are f2 f4 f8 i1 i2 i4 i8 u1 "
                             "u2 u4 u8 b1 after < or >",
                             descr);
    } else if (bit == ORDER) {
        a->fortran = take_word(t, "True");
        if (!a->fortran && !take_word(t, "False"))
            return file_fail(f->ctx, f->path, "fortran_order is neither True nor False");
    } else {
        const char *why = take_shape(t, a);
        if (why) return file_fail(f->ctx, f->path, "%s", why);
    }
    return FOCI_OK;
}

static foci_status read_header(struct foci_file *f, struct npy_text t, foci_array *a)
{
    unsigned seen = 0;
    bool     comma = true, open = take(&t, '{');

    while (open && !take(&t, '}')) {
        if (!comma)
            open = false;
        else
            TRY(take_item(f, &t, a, &seen));
        comma = take(&t, ',');
    }
    skip_blanks(&t);
    if (!open || t.p != t.end)
        return file_fail(f->ctx, f->path,
                         "the header is not one dictionary of descr, fortran_order "
                         "and shape");
    if (seen != ALL_KEYS)
        return file_fail(f->ctx, f->path, "the header lacks %s",
                         !(seen & DESCR)   ? "descr"
                         : !(seen & ORDER) ? "fortran_order"
                                           : "shape");
    return FOCI_OK;
}

/* Where the header begins and how long it is. */
static foci_status frame(struct foci_file *f, size_t *begin, size_t *len)
{
    const unsigned char *m = f->map;

    if (f->bytes < 8)
        return file_fail(f->ctx, f->path, "ends before its version number");
    if (m[6] < 1 || m[6] > 3 || m[7] != 0)
        return file_fail(f->ctx, f->path,
                         "is .npy version %d.%d; accepted are 1.0, 2.0 and 3.0", m[6],
                         m[7]);
    *begin = m[6] == 1 ? 10 : 12;
    if (f->bytes < *begin)
        return file_fail(f->ctx, f->path, "ends before the length of its header");
    *len = (size_t)m[8] | (size_t)m[9] << 8;
    if (m[6] > 1) *len |= (size_t)m[10] << 16 | (size_t)m[11] << 24;
    if (*len > f->bytes - *begin)
        return file_fail(f->ctx, f->path,
                         "the header takes %zu bytes but the file has %zu more", *len,
                         f->bytes - *begin);
    return FOCI_OK;
}

foci_status npy_parse(struct foci_file *f, foci_array *a, size_t *begin, size_t *bytes)
{
    size_t len = 0;
    TRY(frame(f, begin, &len));

    const char *text = (const char *)f->map + *begin;
    a->size = sizeof *a;
    a->name = "";
    TRY(read_header(f, (struct npy_text){ text, text + len }, a));
    if (!shape_size(a->n_dims, a->shape, a->type, &a->count, bytes))
        return file_fail(f->ctx, f->path,
                         "its shape needs more bytes than can be counted");
    *begin += len;
    return FOCI_OK;
}

foci_status npy_read(struct foci_file *f)
{
    size_t begin = 0, bytes;

    f->arrays = ctx_alloc(f->ctx, 1, sizeof *f->arrays);
    if (!f->arrays) return FOCI_ERR_MEMORY;
    f->n = f->cap = 1;

    foci_array *a = f->arrays;
    TRY(npy_parse(f, a, &begin, &bytes));
    if (bytes != f->bytes - begin)
        return file_fail(f->ctx, f->path,
                         "its shape needs %zu bytes of data but the file has %zu",
                         bytes, f->bytes - begin);
    a->data = f->map + begin;
    return FOCI_OK;
}
