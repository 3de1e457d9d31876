/* attend_pack.c -- packing of keys and values for attend_bf16.
 *
 * Tiles are 16 rows of 16 pairs, contiguous, in the order in which they are multiplied.  A
 * tile of keys has the pairs of columns 2t and 2t + 1 in row t, and one key in each column.
 * The saturating pack instruction takes four scores of one tile and then four of the next, so
 * of 32 keys the first tile has keys 8i to 8i + 3 and the second 8i + 4 to 8i + 7: weights
 * then come out in order.
 */

/* Key number i of tile `half` of a group. */
static inline int key_of(int half, int i) { return i / 4 * 8 + half * 4 + i % 4; }

/* The 32 columns from c on of row j, zeros from column d and from row n on. */
INLINE vw stored_32(const uint16_t *in, int64_t ld, int n, int d, int j, int c)
{
    if (j < n && c + 32 <= d) return vw_stored(in + j * ld + c);
    if (j >= n || c >= d) return vw_set1(0);
    return vw_stored_n(in + j * ld + c, d - c);
}

/* A tile of 16 of the keys.  whole: none of its rows and columns is missing. */
INLINE void key_tile(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                     int half, int c, const bool whole)
{
    vf x[T];

    UNROLL(16)
    for (int i = 0; i < T; i++) {
        const int j = key_of(half, i);
        x[i] = (vf)(whole ? vw_stored(in + j * ld + c) : stored_32(in, ld, n, d, j, c));
    }
    vf_transpose(x);
    UNROLL(16)
    for (int i = 0; i < T; i++)
        vw_store(out + i * T, (vw)x[i]);
}

/* Prefetch the rows of the next tile while this one is packed: rows of several heads are too
 * far apart for the hardware prefetcher. */
INLINE void prefetch_next(const uint16_t *in, int64_t ld, int d)
{
    for (int j = 0; j < LANES; j++, in += ld)
        prefetch_bytes(in, LANES * ld * 2, d * 2);
}

static void attend_keys_amx(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                            int wide)
{
    prefetch_next(in, ld, d);
    for (int j = 0; j < LANES;
         j += ATTEND_KEYS, in += ATTEND_KEYS * ld, n -= ATTEND_KEYS)
        for (int c = 0; c < wide; c += 32)
            for (int half = 0; half < 2; half++, out += T * T)
                if (n >= ATTEND_KEYS && c + 32 <= d)
                    key_tile(out, in, ld, n, d, half, c, true);
                else
                    key_tile(out, in, ld, n, d, half, c, false);
}

/* Two tiles of values, or of an odd number the last one. */
INLINE void value_tiles(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                        int c, const bool two)
{
    for (int t = 0; t < T; t++, out += T) {
        const vw low = stored_32(in, ld, n, d, 2 * t, c);
        const vw high = stored_32(in, ld, n, d, 2 * t + 1, c);

        vw_store(out, vw_zip_low(low, high));
        if (two) vw_store(out + T * T, vw_zip_high(low, high));
    }
}

static void attend_values_amx(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                              int d, int wide)
{
    prefetch_next(in, ld, d);
    for (int j = 0; j < LANES;
         j += ATTEND_KEYS, in += ATTEND_KEYS * ld, n -= ATTEND_KEYS)
        for (int c = 0; c < wide; c += 2 * T) {
            const bool two = c + T < wide;

            if (two)
                value_tiles(out, in, ld, n, d, c, true);
            else
                value_tiles(out, in, ld, n, d, c, false);
            out += (two ? 2 : 1) * T * T;
        }
}

/* Bits [64 keys][64 lanes], transposed.  Byte i of all keys becomes a vector; its bit 7
 * in each of them is a lane's row of the result, and then the next bit. */
static void seen_rows_amx(uint32_t *out, const uint64_t *seen, int n)
{
    _Alignas(64) uint8_t bytes[8][LANES];
    const __m512i        order =
        _mm512_set_epi8(63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6,
                        61, 53, 45, 37, 29, 21, 13, 5, 60, 52, 44, 36, 28, 20, 12, 4,
                        59, 51, 43, 35, 27, 19, 11, 3, 58, 50, 42, 34, 26, 18, 10, 2,
                        57, 49, 41, 33, 25, 17, 9, 1, 56, 48, 40, 32, 24, 16, 8, 0);

    for (int j = 0; j < LANES; j += 8) {
        const int      left = n - j < 0 ? 0 : n - j;
        const __mmask8 some = left >= 8 ? 0xff : (__mmask8)((1u << left) - 1);
        const __m512i  x =
            _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi64(some, seen + j));

        for (int i = 0; i < 8; i++)
            memcpy(&bytes[i][j], (const char *)&x + 8 * i, 8);
    }
    for (int i = 0; i < 8; i++) {
        __m512i x = _mm512_load_si512(bytes[i]);

        for (int bit = 7; bit >= 0; bit--, x = _mm512_add_epi8(x, x)) {
            const uint64_t row = _cvtmask64_u64(_mm512_movepi8_mask(x));

            out[8 * i + bit] = (uint32_t)row;
            out[LANES + 8 * i + bit] = (uint32_t)(row >> 32);
        }
    }
}
