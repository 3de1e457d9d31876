/* report_heads.c -- heat maps of the heads of models: what foci eval --heads wrote goes into the
 * page as JSON, where the script draws what a reader chooses; as files of their own they are
 * drawn here, all heads of an arm side by side.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"

enum {
    MOST_BYTES = 3 << 20, /* of all weights in the page */
    MOST_TOKENS = 1024,   /* of a file that is read */
    MOST_AREA = 1 << 24,  /* of a picture of all maps */
    ACROSS = 8,           /* maps side by side, in a file of all */
    CELL = 2,
    GAP = 14,
    EDGE = 24,
    HEAD = 56
};

static int64_t whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/*
 * Reading
 */

/* Replaced by what can be shown. */
static void make_visible(json_t *o, const char *key)
{
    char *visible = markup_visible(field_text(o, key));
    json_object_set_new(o, key, json_string(visible));
    free(visible);
}

static bool is_attention(const json_t *o)
{
    const int64_t queries = whole(o, "queries"), keys = whole(o, "keys");
    size_t        i;
    json_t       *head;

    if (!json_is_string(json_object_get(o, "name")) || queries < 1 || keys < 1 ||
        queries > MOST_TOKENS || keys > MOST_TOKENS ||
        !json_is_array(json_object_get(o, "heads")))
        return false;
    json_array_foreach(json_object_get(o, "heads"), i, head)
    {
        if (strlen(field_text(head, "weights")) !=
                (size_t)((queries * keys + 2) / 3 * 4) ||
            !json_is_number(json_object_get(head, "most")))
            return false;
    }
    return true;
}

/* Whether all is there; texts of people become visible. */
static bool check(json_t *o)
{
    json_t *attentions = json_object_get(o, "attentions"), *one, *token;
    size_t  i, k;

    if (!json_array_size(attentions)) return false;
    json_array_foreach(attentions, i, one)
    {
        if (!is_attention(one)) return false;
        make_visible(one, "name");
        make_visible(one, "attention");
        if (json_object_get(one, "why")) make_visible(one, "why");
    }
    json_array_foreach(json_object_get(o, "sides"), i, one)
    {
        json_array_foreach(one, k, token)
        {
            const char *text = json_string_value(token);
            char       *visible = markup_visible(text ? text : "");
            json_array_set_new(one, k, json_string(visible));
            free(visible);
        }
    }
    return true;
}

static size_t weight_bytes(const json_t *o)
{
    size_t  n = 0, i, k;
    json_t *attention, *head;

    json_array_foreach(json_object_get(o, "attentions"), i, attention)
    {
        json_array_foreach(json_object_get(attention, "heads"), k, head)
        {
            n += strlen(field_text(head, "weights"));
        }
    }
    return n;
}

void report_take_heads(struct report *r, const char *path, const char *arm, int64_t seed)
{
    json_t *o = json_load_file(path, 0, NULL), *one;
    size_t  i, bytes = weight_bytes(o);

    if (!o || !check(o)) {
        note(r->a, "%s: has no weights of heads: they are left out", path);
        json_decref(o);
        return;
    }
    json_array_foreach(r->heads, i, one) { bytes += weight_bytes(one); }
    if (bytes > MOST_BYTES) {
        note(r->a, "%s: is left out of the page, which has heads of %.1f MB already",
             path, MOST_BYTES / 1e6);
        json_decref(o);
        return;
    }
    char *name = markup_visible(arm);
    json_object_set_new(o, "arm", json_string(name));
    free(name);
    json_object_set_new(o, "number", json_integer(report_number(r, arm)));
    if (seed >= 0) json_object_set_new(o, "seed", json_integer((json_int_t)seed));
    json_array_append_new(r->heads, o);
}

/*
 * Files of maps
 */

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : 0;
}

/* Weights from -127 to 127, to be freed. */
static int8_t *unpack(const json_t *head, size_t n)
{
    const char *text = field_text(head, "weights");
    int8_t     *bytes = need(n + 3, 1);

    for (size_t i = 0; i < n; i += 3, text += 4) {
        const uint32_t x =
            (uint32_t)digit_of(text[0]) << 18 | (uint32_t)digit_of(text[1]) << 12 |
            (uint32_t)digit_of(text[2]) << 6 | (uint32_t)digit_of(text[3]);
        for (int k = 0; k < 3; k++)
            bytes[i + (size_t)k] = (int8_t)(uint8_t)(x >> (16 - 8 * k));
    }
    return bytes;
}

static uint8_t *shades_of(const int8_t *bytes, size_t n)
{
    uint8_t *shades = need(n + 1, 1);

    for (size_t i = 0; i < n; i++) {
        const int size = abs(bytes[i]) * (SHADES - 1) / 127;
        shades[i] = (uint8_t)(bytes[i] < 0 && size ? SHADES - 1 + size : size);
    }
    return shades;
}

static void put_csv(struct markup *csv, const json_t *attention, int h,
                    const int8_t *bytes, double most)
{
    const int64_t queries = whole(attention, "queries"),
                  keys = whole(attention, "keys");

    for (int64_t i = 0; i < queries; i++)
        for (int64_t k = 0; k < keys; k++) {
            const double b = bytes[i * keys + k];
            if (b == 0) continue;
            markup_csv(csv, field_text(attention, "name"));
            markup_put(csv, ",%d,%lld,%lld,%.4g\n", h, (long long)i, (long long)k,
                       most * b * fabs(b) / (127 * 127));
        }
}

/* The place of every map of an arm: attentions below one another, ACROSS heads side by side. */
struct sheet {
    struct picture *to;
    struct markup   csv;
    uint8_t        *shades[1024];
    size_t          n;
};

static double put_attention(struct sheet *s, const json_t *attention, double y)
{
    const int64_t queries = whole(attention, "queries"),
                  keys = whole(attention, "keys");
    const size_t cells = (size_t)(queries * keys);
    size_t       h;
    json_t      *head;

    picture_text(s->to, EDGE, y + 10, AT_START, STYLE_PLAIN, SOFT, "%s: %s",
                 field_text(attention, "name"), field_text(attention, "attention"));
    y += 18;
    json_array_foreach(json_object_get(attention, "heads"), h, head)
    {
        if (s->n == sizeof s->shades / sizeof *s->shades) break;
        int8_t     *bytes = unpack(head, cells);
        struct grid grid = {
            .rows = (int)queries, .columns = (int)keys, .wide = CELL, .tall = CELL
        };
        s->shades[s->n] = shades_of(bytes, cells);
        grid.shades = s->shades[s->n++];
        const size_t row = h / ACROSS;
        const double across = (double)(h % ACROSS) * (double)(keys * CELL + GAP);
        const double down = (double)row * (double)(queries * CELL + GAP);
        picture_grid(s->to, EDGE + across, y + down, &grid);
        put_csv(&s->csv, attention, (int)h, bytes,
                json_number_value(json_object_get(head, "most")));
        free(bytes);
    }
    const size_t heads = json_array_size(json_object_get(attention, "heads"));
    const size_t rows = (heads + ACROSS - 1) / ACROSS;
    return y + (double)rows * (double)(queries * CELL + GAP) + GAP;
}

static void put_sheet(struct report *r, const json_t *arm)
{
    struct sheet s = { .n = 0 };
    int64_t      wide = 0, tall = HEAD;
    size_t       i;
    json_t      *attention;

    json_array_foreach(json_object_get(arm, "attentions"), i, attention)
    {
        const int64_t heads =
            (int64_t)json_array_size(json_object_get(attention, "heads"));
        const int64_t rows = (heads + ACROSS - 1) / ACROSS;
        const int64_t w =
            (heads < ACROSS ? heads : ACROSS) * (whole(attention, "keys") * CELL + GAP);
        wide = w > wide ? w : wide;
        tall += 18 + rows * (whole(attention, "queries") * CELL + GAP) + GAP;
    }
    if (tall > MOST_AREA / (wide > 400 ? wide : 400)) {
        note(r->a, "%s: its maps are %lld x %lld, too large for a file of all",
             field_text(arm, "arm"), (long long)wide, (long long)tall);
        return;
    }
    char  *name = compare_text("heads-%lld", (long long)whole(arm, "number"));
    double y = HEAD;
    size_t n;
    s.to = picture_create((int)fmax((double)wide, 400) + 2 * EDGE, (int)tall + EDGE,
                          field_text(arm, "arm"));
    picture_text(s.to, EDGE, 32, AT_START, STYLE_TITLE, INK, "%.80s",
                 field_text(arm, "arm"));
    markup_put(&s.csv, "attention,head,query,key,weight\n");
    json_array_foreach(json_object_get(arm, "attentions"), i, attention)
    {
        y = put_attention(&s, attention, y);
    }
    struct markup svg = { 0 };
    picture_put_svg(&svg, s.to, false);
    uint8_t *png = picture_png_bytes(s.to, &n);
    report_file(r, name, "svg", svg.bytes, svg.n);
    report_file(r, name, "png", (const char *)png, n);
    report_file(r, name, "csv", s.csv.bytes, s.csv.n);
    for (i = 0; i < s.n; i++)
        free(s.shades[i]);
    free(png);
    free(name);
    markup_free(&svg);
    markup_free(&s.csv);
    picture_free(s.to);
}

/*
 * The page
 */

void report_put_heads(struct report *r)
{
    size_t  i;
    json_t *arm;

    if (!json_array_size(r->heads)) return;
    markup_put(
        &r->page,
        "<section id=heads>\n<h2>Attention maps</h2>\n"
        "<p>The weights of every head on the first validation sequence, of one seed of "
        "each arm. Rows are queries, columns the keys that they look at. Shades go "
        "with "
        "the square root of a weight, up to the largest one of its head; negative "
        "weights "
        "are orange.</p>\n"
        "<noscript><p>The maps are drawn by the script of this page, which is switched "
        "off.</p></noscript>\n<div id=viewer hidden>\n"
        "<div class=controls><label>Arm <select id=arm></select></label> "
        "<label>Layer <select id=layer></select></label> "
        "<label>Head <select id=head></select></label></div>\n"
        "<div id=thumbs role=group aria-label='All heads of the arm'></div>\n"
        "<div class=map><div class=mapside><p id=spec class=quiet></p>"
        "<canvas id=map tabindex=0 role=application "
        "aria-label='Heat map. Arrow keys move over queries and keys.' "
        "aria-describedby=said></canvas>\n<div id=bar aria-hidden=true></div></div>\n"
        "<div class=textside><p id=said role=status aria-live=polite></p>"
        "<div id=tokens aria-label='The sequence, shaded by what the chosen query "
        "looks "
        "at' role=group></div>"
        "<details><summary>This head as a table</summary><div id=headtable "
        "class=scroll "
        "tabindex=0 role=region aria-label='Strongest keys of each "
        "query'></div></details>"
        "<p class=files><a id=headcsv download=head.csv href=data:,>CSV of this "
        "head</a>"
        "</p></div></div>\n</div>\n<script type=application/json id=data>");
    markup_json(&r->page, r->heads);
    markup_put(&r->page, "</script>\n</section>\n");
    json_array_foreach(r->heads, i, arm)
    {
        if (r->plots) put_sheet(r, arm);
    }
}
