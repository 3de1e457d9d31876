/* labels.c -- arg-max of scores, and equality of labels. */

static void best(const float *s, int n, int first, int both, float *most, float *next,
                 float *at)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const float x = s[j * LANES + i], y = both ? fabsf(x) : x;
            const float number = (float)(first + j);

            if (y > most[i]) {
                next[i] = most[i];
                most[i] = y;
                at[i] = both ? copysignf(number + 1.0f, x) : number;
            } else if (y > next[i]) {
                next[i] = y;
            }
        }
}

static void match(uint64_t *seen, const int32_t *lane, const int32_t *key, int n)
{
    for (int j = 0; j < n; j++) {
        seen[j] = 0;
        for (int i = 0; i < LANES; i++)
            seen[j] |= (uint64_t)(lane[i] == key[j]) << i;
    }
}
