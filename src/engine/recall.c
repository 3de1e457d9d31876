/* recall.c */
#include "plan/plan.h"

const struct engine engine_recall = { .name = "recall" };
