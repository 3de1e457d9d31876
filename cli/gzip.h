/* gzip.h -- texts from files, plain or gz, and from standard input. */
#ifndef CLI_GZIP_H
#define CLI_GZIP_H

#include "foci/text.h"

/* Open a text by its path, "-" for standard input; gz is recognised by its first bytes.
 * NULL, or what is wrong, as the end of a sentence.  foci_reader_close() closes it. */
const char *gzip_open(const char *path, foci_reader *reader);

/* Bytes of the stored file that have been read so far. */
int64_t gzip_offset(const foci_reader *reader);

#endif
