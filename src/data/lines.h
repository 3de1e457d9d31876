/* lines.h -- the lines of a reader, one after the other, without reading it whole; and its
 * bytes. */
#ifndef FOCI_DATA_LINES_H
#define FOCI_DATA_LINES_H

#include "core/core.h"
#include "foci/text.h"

/* Longer lines are refused, unless they are read in pieces. */
enum { LINE_MOST = 64 << 20 };
/* The longest piece of running text. */
enum { PIECE_MOST = 1 << 20 };

struct line_reader {
    foci_ctx   *ctx;
    foci_reader reader;
    char        name[256]; /* of the reader, for messages after it was closed too */
    char       *buffer;    /* [cap], bytes begin to end are not consumed yet */
    int64_t     cap, begin, end;
    int64_t     offset;  /* in the file, of the byte at begin */
    int64_t     number;  /* of the line at begin, from 0 */
    bool        ended;   /* the reader gave its last byte */
    bool        started; /* a byte order mark and a header have been looked for */
    bool        header;  /* a first line that begins so is no example: "# foci " */
};

/* A line, or a piece of one, without its end.  It is there until the next call. */
struct data_line {
    const char *text; /* NULL: there is none left */
    int64_t     bytes;
    int64_t     number; /* from 0 */
    int64_t     offset; /* of its first byte in the file */
    bool        closed; /* the end of the line followed */
};

/* Take ownership of a reader. */
void lines_open(struct line_reader *l, foci_ctx *ctx, const foci_reader *reader);

/* "NAME: reason" into the context; FOCI_ERR_FILE.  With a line, "NAME, line 3: reason". */
foci_status lines_fail(const struct line_reader *l, const struct data_line *line,
                       const char *format, ...) PRINTF_LIKE(3, 4);

/* The next line.  "\r\n" ends one as "\n" does, and a mark of the byte order at the start of
 * the file is left out.  With `pieces`, lines longer than PIECE_MOST come in pieces, which
 * end before a blank where there is one. */
foci_status lines_next(struct line_reader *l, bool pieces, struct data_line *line);

/* Whether there is another. */
foci_status lines_more(struct line_reader *l, bool *more);

/* Bytes in place of lines.  lines_look: up to `want` bytes that follow, not consumed (fewer at
 * the end of the file; valid until the next call).  lines_take: consume some. */
foci_status lines_look(struct line_reader *l, int64_t want, const char **at,
                       int64_t *there);
void        lines_take(struct line_reader *l, int64_t bytes);

/* Back to the start. */
foci_status lines_rewind(struct line_reader *l);

/* The size of the whole file, which is then at its start again. */
foci_status lines_measure(struct line_reader *l, int64_t *bytes);

/* Close the reader; freeing does so as well. */
void lines_close(struct line_reader *l);
void lines_free(struct line_reader *l);

#endif
