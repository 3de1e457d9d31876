/* gz.h -- files that examples are read from: plain files, gzip files, members of NumPy's .npz
 * archives; and files that are shipped with the command. */
#ifndef FOCI_CLI_GZ_H
#define FOCI_CLI_GZ_H

#include "cli/cli.h"
#include "foci/text.h"

/* Open a file, plain or compressed by gzip, "-" for stdin, or "FILE.npz:NAME" for an array
 * of an archive.  The name is copied.  EXIT_OK, or a status with the message printed. */
int text_open(const struct args *a, const char *path, foci_reader *reader);

/* The same, of its first `lines` lines only; 0: of all. */
int text_open_first(const struct args *a, const char *path, int64_t lines,
                    foci_reader *reader);

/* Whether a path is one of an array, or of an archive of them. */
bool path_is_array(const char *path);

/* The images (labels 0) or the labels of FILE.npz: the array that is called so, or x and y,
 * or data and target.  As above. */
int npz_open_part(const struct args *a, const char *path, int labels,
                  foci_reader *reader);
/* An array of an archive by its name. */
int npz_open(const struct args *a, const char *path, const char *name,
             foci_reader *reader);

/* An archive and its arrays.  Messages begin with `shown`, which outlives it.  npz_free() in
 * any case. */
struct npz;
enum { NPZ_NAME = 256 };
bool npz_is(const char *path); /* by its first bytes */
int  npz_list(const struct args *a, const char *path, const char *shown,
              struct npz **out);
/* The name of array number i, cut where it is too long; false beyond the last. */
bool npz_name(const struct npz *z, int i, char name[NPZ_NAME]);
/* A reader of array number i, which may outlive the archive. */
int  npz_member(const struct args *a, const struct npz *z, int i, foci_reader *reader);
void npz_free(struct npz *z);

/* Where the name of an array begins in "FILE:NAME", of a FILE that is there; NULL: the text is
 * a path and nothing else.  A file whose own name has the colon comes first. */
const char *array_of_path(const char *text);

/* A shipped file by its name, "office-de-en.train.tsv.gz": in the folder that FOCI_DATA
 * names, or beside the command where it was built or installed.  NULL, with the message
 * printed, where it is not found. */
const char *shipped_path(const struct args *a, const char *name, char path[4096]);

#endif
