/* report_theory.c -- concentration of trained heads against theory.
 *
 * Weights e^x over keys whose logits x are normal with the standard deviation gamma have
 *
 *     S = |a|_1 / (sqrt(n) |a|_2) = e^(-gamma^2 / 2)
 *
 * as their number grows.  Whatever a mechanism computes, where all its weights are positive
 * they are e^x of something: gamma is the standard deviation of their logarithms, and a head is
 * a point.  On the line its weights are as uneven as such a spread makes normal ones; above it
 * a few small ones make the spread, below it a few large ones have nearly all.
 */
#include <math.h>
#include <string.h>

#include "cli/report.h"
#include "foci/analyse.h"

/* The heads of an arm, each a point; the largest spread. */
static double add_heads(struct chart *c, const json_t *arm)
{
    struct chart_series *s =
        chart_add(c, json_string_value(json_object_get(arm, "arm")),
                  (int)json_integer_value(json_object_get(arm, "number")));
    double  most = 0;
    size_t  i, k;
    json_t *attention, *head;

    s->marked = true;
    json_array_foreach(json_object_get(arm, "attentions"), i, attention)
    {
        json_array_foreach(json_object_get(attention, "heads"), k, head)
        {
            const json_t *spread = json_object_get(head, "spread");
            const json_t *row = json_object_get(head, "concentration");
            const double  x = field_real(spread, "mean");
            if (!isfinite(x)) continue;
            chart_put(s, x, field_real(row, "mean"), field_real(row, "low"),
                      field_real(row, "high"));
            most = fmax(most, x);
        }
    }
    if (!s->n) chart_drop(c);
    return most;
}

static void add_law(struct chart *c, double most)
{
    enum { FINE = 49 };
    struct chart_series *s = chart_add(c, "theory: exp(-\xce\xb3\xc2\xb2/2)", -1);

    s->joined = s->dashed = true;
    for (int i = 0; i < FINE; i++) {
        const foci_concentration_law law = { FOCI_SIZED(foci_concentration_law),
                                             .kind = FOCI_CONCENTRATION_EXP,
                                             .gamma = most * i / (FINE - 1) };
        double                       y;
        if (!foci_concentration_theory(&law, &y)) chart_put(s, law.gamma, y, NAN, NAN);
    }
}

void report_put_theory(struct report *r)
{
    struct chart *c =
        chart_create("concentration", "How concentrated the heads are",
                     "\xce\xb3: standard deviation of log weights", "concentration S");
    double  most = 0;
    size_t  i;
    json_t *arm;

    json_array_foreach(r->heads, i, arm) { most = fmax(most, add_heads(c, arm)); }
    if (chart_settle(c)) {
        add_law(c, fmax(most, 1));
        chart_note(c,
                   "A point is a head on the first validation sequence, its bar the "
                   "quartiles over positions. S is 1 where all weights are equal. The "
                   "line is the closed form for normal logits; heads some of whose "
                   "weights are 0 have no place here.");
        markup_put(&r->page, "<section>\n<h2>Heads</h2>\n<div class=figures>\n");
        report_figure(r, c);
        markup_put(&r->page, "</div></section>\n");
    } else {
        chart_free(c);
    }
}
