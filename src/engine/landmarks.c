/* landmarks.c */
#include "plan/plan.h"

const struct engine engine_landmarks = { .name = "landmarks" };
