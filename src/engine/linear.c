/* linear.c -- the linear engine: geometry of an execution, sizes, cost, printing. */
#include "engine/linear.h"

const struct engine engine_linear = { .name = "linear" };
