/* classes.h -- the names of classes, and the class of a label. */
#ifndef FOCI_CLASSES_H
#define FOCI_CLASSES_H

#include "data/data.h"

/* Take the names of the options. */
foci_status classes_take(foci_data *d);

/* Collect names: add that of a line; at the end number them in the order of their bytes. */
foci_status classes_add(foci_data *d, const struct data_line *line, foci_string label);
foci_status classes_number_all(foci_data *d);

/* n classes that are named by their numbers. */
foci_status classes_count(foci_data *d, int64_t n);

foci_status classes_find(foci_data *d, const struct data_line *line, foci_string label,
                         int32_t *answer);

void classes_free(foci_data *d);

#endif
