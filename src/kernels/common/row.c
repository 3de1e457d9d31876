/* row.c -- elements of rows of a type, as vectors.  A level may have stores of its own. */
#ifndef VF_PUT
#define VF_PUT   vf_to
#define VF_PUT_N vf_to_n
#endif

/* Elements c on of a row, `some` of them or all (0). */
INLINE vf ISA(row_get)(const char *row, int64_t c, const int some, const int dtype)
{
    const char *const p = row + c * (dtype == FOCI_F32 ? 4 : 2);
    return some ? vf_from_n(p, dtype, some) : vf_from(p, dtype);
}

INLINE void ISA(row_put)(char *row, int64_t c, vf x, const int some, const int dtype)
{
    char *const p = row + c * (dtype == FOCI_F32 ? 4 : 2);

    if (some)
        VF_PUT_N(p, dtype, x, some);
    else
        VF_PUT(p, dtype, x);
}

/* Where row i begins; NULL stays NULL. */
INLINE char *ISA(row_of)(const void *rows, int64_t i, int64_t ld, const int dtype)
{
    return rows ? (char *)rows + i * ld * (dtype == FOCI_F32 ? 4 : 2) : NULL;
}
