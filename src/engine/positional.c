/* positional.c */
#include "plan/plan.h"

const struct engine engine_positional = { .name = "positional" };
