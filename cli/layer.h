/* layer.h -- layers on the command line: their kinds, and problems with a width. */
#ifndef FOCI_CLI_LAYER_H
#define FOCI_CLI_LAYER_H

#include "cli/cli.h"
#include "foci/layer.h"

/* As foci_layer_kind counts them. */
#define LAYER_KINDS "attention|gau|conv"
const char *layer_kind_name(foci_layer_kind kind);

enum { LAYER_WIDEST = 1 << 24 };

/* Does the text name the width of a layer? */
bool layer_has_width(const char *problem);

/* Read b4h8k2n1024m512d64v64w512c, letters of docs/specs.md with w for the width of x.
 * d and v may be left out; m is the length of a source.  What the layer's plan would be
 * made for goes to *p, as near as it is known.  layer->kind is set; other fields of the
 * two are left alone.  EXIT_OK, or a status with the message printed. */
int layer_parse(const struct args *a, foci_ctx *ctx, const char *text, foci_problem *p,
                foci_layer_problem *layer);

/* That text for a layer, to be freed. */
char *layer_problem_text(const foci_layer *layer);

/* What foci_layer_describe() writes, to be freed. */
char *layer_text(const foci_layer *layer);

#endif
