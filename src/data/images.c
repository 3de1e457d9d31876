/* images.c -- images and their classes, from .npy files.
 *
 * Images follow one another in the file, so they are read like lines: as many at a time as
 * memory allows.  They are stored as in the file until a batch needs them, and are then
 * converted to numbers (x - shift) * scale and cut into square patches.
 */
#include <math.h>
#include <string.h>

#include "data/classes.h"
#include "data/data.h"
#include "data/images.h"
#include "file/format.h"

/* A header that is longer is not NumPy's. */
enum { HEADER_MOST = 1 << 16 };

/* The header of reader number r, which is then at its data. */
static foci_status read_header(foci_data *d, int r, foci_array *a, size_t *bytes)
{
    const char *at;
    int64_t     there;
    char        name[256];
    size_t      begin;

    TRY(lines_look(&d->lines[r], HEADER_MOST, &at, &there));
    snprintf(name, sizeof name, "%s", d->lines[r].name);
    if (there < 6 || memcmp(at, "\x93NUMPY", 6) != 0)
        return lines_fail(&d->lines[r], NULL,
                          "is no array of NumPy (.npy begins with \\x93NUMPY)");
    struct foci_file f = { .ctx = d->ctx,
                           .path = name,
                           .map = (const unsigned char *)at,
                           .bytes = (size_t)there };
    *a = (foci_array){ 0 };
    TRY(npy_parse(&f, a, &begin, bytes));
    lines_take(&d->lines[r], (int64_t)begin);
    return FOCI_OK;
}

/* The next `bytes` of reader r, which image or label number i of n needs. */
static foci_status look(foci_data *d, int r, size_t bytes, int64_t i, int64_t n,
                        const char **at)
{
    int64_t there;

    TRY(lines_look(&d->lines[r], (int64_t)bytes, at, &there));
    if (there == (int64_t)bytes) return FOCI_OK;
    return lines_fail(&d->lines[r], NULL,
                      "ends in number %lld of the %lld that its header speaks of",
                      (long long)i, (long long)n);
}

/*
 * Labels
 */

static foci_status convert_labels(foci_data *d, const foci_array *a)
{
    struct images *m = &d->images;
    int32_t       *labels = m->labels.at;
    int32_t        most = 0;

    if (foci_array_to_i32(a, labels))
        return lines_fail(&d->lines[1], NULL,
                          "has a label that is no whole number below 2^31");
    m->labels.n = m->n;
    for (int64_t i = 0; i < m->n; i++) {
        if (labels[i] < 0 || (d->o.n_classes && labels[i] >= d->o.n_classes))
            return lines_fail(
                &d->lines[1], NULL, "label %lld is %d; classes are counted from 0%s",
                (long long)i, labels[i], labels[i] < 0 ? "" : ", and there are fewer");
        most = labels[i] > most ? labels[i] : most;
    }
    if (d->o.classes) return classes_take(d);
    return classes_count(d, d->o.n_classes ? d->o.n_classes : (int64_t)most + 1);
}

static foci_status read_labels(foci_data *d)
{
    struct images *m = &d->images;
    foci_array     a = { 0 };
    size_t         bytes;
    int64_t        there;
    const char    *at;

    TRY(read_header(d, 1, &a, &bytes));
    if (a.n_dims != 1 || a.count != m->n)
        return lines_fail(&d->lines[1], NULL,
                          "is an array of %d axes and %lld numbers; [%lld] labels are "
                          "needed, one for each image",
                          a.n_dims, (long long)a.count, (long long)m->n);
    TRY(look(d, 1, bytes, 0, m->n, &at));
    TRY(vec_reserve(d->ctx, &m->labels, m->n, sizeof(int32_t)));
    a.data = at;
    TRY(convert_labels(d, &a));
    lines_take(&d->lines[1], (int64_t)bytes);
    TRY(lines_look(&d->lines[1], 1, &at, &there));
    if (there)
        return lines_fail(&d->lines[1], NULL, "has more bytes than its header says");
    lines_close(&d->lines[1]);
    return FOCI_OK;
}

/*
 * Shapes
 */

static foci_status check_shape(foci_data *d, const foci_array *a)
{
    const int64_t *shape = a->shape;
    const int64_t  patch = d->o.patch;
    struct images *m = &d->images;
    size_t         bytes;
    int64_t        count;

    if (a->n_dims < 3 || a->n_dims > 4)
        return lines_fail(&d->lines[0], NULL,
                          "has %d axes; images are [n][height][width] or "
                          "[n][height][width][channels]",
                          a->n_dims);
    if (a->fortran)
        return lines_fail(&d->lines[0], NULL,
                          "is in Fortran order; numpy.ascontiguousarray() puts images "
                          "one behind the other");
    if (!a->count)
        return lines_fail(&d->lines[0], NULL, "has no images, or images of no pixels");
    m->one = *a;
    m->one.n_dims = a->n_dims - 1;
    memmove(m->one.shape, a->shape + 1, (size_t)m->one.n_dims * sizeof *a->shape);
    (void)shape_size(m->one.n_dims, m->one.shape, a->type, &count, &bytes);
    m->one.count = count;
    m->bytes = bytes;
    m->n = shape[0];
    m->height = shape[1];
    m->width = shape[2];
    m->channels = a->n_dims == 4 ? shape[3] : 1;
    if (m->height % patch || m->width % patch)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "patch=%lld: it does not divide images of %lld x %lld pixels",
                        (long long)patch, (long long)m->height, (long long)m->width);
    m->rows = m->height / patch;
    m->cols = m->width / patch;
    return FOCI_OK;
}

static foci_status check_len(foci_data *d)
{
    struct images *m = &d->images;

    if (m->rows > INT32_MAX / m->cols || m->one.count > INT32_MAX)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "images of %lld x %lld pixels are too large",
                        (long long)m->height, (long long)m->width);
    const int64_t len = m->rows * m->cols;
    if (d->o.len && d->o.len < len)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "len=%lld: images have %lld patches of side %lld",
                        (long long)d->o.len, (long long)len, (long long)d->o.patch);
    d->o.len = len;
    return vec_reserve(d->ctx, &m->floats, m->one.count, sizeof(float));
}

/*
 * Reading
 */

void images_floats(const foci_data *d, const void *pixels, float *out)
{
    foci_array one = d->images.one;

    one.data = pixels;
    foci_array_to_f32(&one, out);
}

/* Look at the next image and see that it is made of numbers. */
static foci_status next_image(foci_data *d, const char **at)
{
    struct images *m = &d->images;
    float         *x = m->floats.at;

    TRY(look(d, 0, m->bytes, m->at, m->n, at));
    images_floats(d, *at, x);
    for (int64_t i = 0; i < m->one.count; i++)
        if (!isfinite(x[i]))
            return lines_fail(&d->lines[0], NULL,
                              "image %lld has a value that is not a finite number",
                              (long long)m->at);
    return FOCI_OK;
}

static void pass_image(foci_data *d)
{
    lines_take(&d->lines[0], (int64_t)d->images.bytes);
    d->images.at++;
}

static foci_status skip(foci_data *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const char *at;
        TRY(look(d, 0, d->images.bytes, d->images.at, d->images.n, &at));
        pass_image(d);
    }
    return FOCI_OK;
}

static foci_status rewind_images(foci_data *d)
{
    foci_array a = { 0 };
    size_t     bytes;

    TRY(lines_rewind(&d->lines[0]));
    TRY(read_header(d, 0, &a, &bytes));
    if (a.count != d->images.n * d->images.one.count || a.type != d->images.one.type)
        return lines_fail(&d->lines[0], NULL, "was changed while it is in use");
    d->images.at = 0;
    return skip(d, d->images.begin);
}

/* Mean and variance over all values; each image is added to what those before it have
 * (Chan, Golub and LeVeque 1979). */
static foci_status measure(foci_data *d)
{
    struct images *m = &d->images;
    const int64_t  count = m->one.count;
    const float   *x = m->floats.at;
    double         mean = 0, squares = 0, seen = 0;

    TRY(skip(d, m->begin));
    while (m->at < m->end) {
        const char *at;
        double      sum = 0, own = 0;
        TRY(next_image(d, &at));
        for (int64_t i = 0; i < count; i++)
            sum += (double)x[i];
        const double centre = sum / (double)count, off = centre - mean;
        for (int64_t i = 0; i < count; i++)
            own += ((double)x[i] - centre) * ((double)x[i] - centre);
        squares += own + off * off * seen * (double)count / (seen + (double)count);
        seen += (double)count;
        mean += off * (double)count / seen;
        pass_image(d);
    }
    d->o.shift = mean;
    d->o.scale = squares > 0 ? 1 / sqrt(squares / seen) : 1;
    return rewind_images(d);
}

static foci_status open_images(foci_data *d)
{
    struct images *m = &d->images;
    foci_array     a = { 0 };
    size_t         bytes;

    TRY(read_header(d, 0, &a, &bytes));
    TRY(check_shape(d, &a));
    TRY(check_len(d));
    TRY(read_labels(d));
    m->begin = (int64_t)((double)m->n * d->o.part_begin);
    m->end = d->o.part_end > 0 ? (int64_t)((double)m->n * d->o.part_end) : m->n;
    if (m->begin >= m->end)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "none of the %lld images lies in the part that is wanted",
                        (long long)m->n);
    if (d->o.examples) m->end = min64(m->end, m->begin + d->o.examples);
    return d->o.scale == 0 ? measure(d) : skip(d, m->begin);
}

static foci_status images_fill(foci_data *d)
{
    struct images *m = &d->images;
    const char    *at;
    int64_t        there;

    store_clear(d);
    do {
        const struct example e = { .begin[0] = d->store.examples.n,
                                   .n[0] = (int32_t)d->o.len,
                                   .answer = VEC(int32_t, &m->labels, m->at),
                                   .number = m->at };
        TRY(next_image(d, &at));
        TRY(VEC_ADD(d->ctx, &d->store.pixels, at, (int64_t)m->bytes));
        TRY(VEC_ADD(d->ctx, &d->store.examples, &e, 1));
        pass_image(d);
        d->block.taken++;
        d->seen.tokens += d->o.len;
    } while (m->at < m->end && !store_full(d));
    d->block.last = m->at == m->end;
    if (m->at < m->n) return FOCI_OK;
    TRY(lines_look(&d->lines[0], 1, &at, &there));
    if (there)
        return lines_fail(&d->lines[0], NULL, "has more bytes than its header says");
    return FOCI_OK;
}

const struct supply supply_images = {
    .open = open_images,
    .fill = images_fill,
    .rewind = rewind_images,
    .skip = skip,
};
