/* What translating on a CPU takes most of its time for, in one pass over memory each: linear layers in 8 bits and the
   attention of few queries. For x86 with VNNI, by GCC or Clang; elsewhere this file is empty. quantize.py calls it, with
   the shapes, from any number of threads.

   torch has the integer product, but rounds what comes in and scales what goes out in ten operations around it, which
   take two thirds of the product's time again, and each of which waits for Python's lock. */

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) VNNI

enum {
    ROWS = 12,            /* of a tile: 24 sums, two vectors of weights and one of input fit the 32 registers */
    COLUMNS = 32,         /* of a tile */
    CHUNK = 11 * ROWS,    /* rows that are rounded at once */
    WEIGHTS = 256 * 1024, /* bytes of them that all rows of a chunk meet before the next come: they stay in cache */
};

/* Which of 16 numbers are among the n that are left. */
INLINE __mmask16 among(long n) { return n >= 16 ? 0xffff : n > 0 ? (1u << n) - 1 : 0; }

/* Rounds a row x of d numbers to q, with zeros up to d_padded: to its largest entry over 127, which is its scale. */
INLINE void quantize(const float *x, long d, long d_padded, int8_t *q, float *scale, int32_t *sum) {
    __m512 most = _mm512_set1_ps(1e-30f);
    for (long i = 0; i < d; i += 16)
        most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_maskz_loadu_ps(among(d - i), x + i)));
    *scale = _mm512_reduce_max_ps(most) / 127;
    __m512 by = _mm512_set1_ps(1 / *scale);
    __m512i total = _mm512_setzero_si512();
    for (long i = 0; i < d_padded; i += 16) {
        __m512 part = _mm512_mul_ps(_mm512_maskz_loadu_ps(among(d - i), x + i), by);
        __m512i whole = _mm512_cvtps_epi32(part); /* to the nearest, of two the even one, as torch.round */
        total = _mm512_add_epi32(total, whole);
        _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(whole));
    }
    *sum = _mm512_reduce_add_epi32(total);
}

/* R rows by COLUMNS of the product. VNNI multiplies numbers without a sign by numbers with one: the weights are stored
   with 128 added, which times the row's sum is taken off again. */
INLINE void tile(const int R, const int8_t *q, const uint8_t *w, long d_padded, const int32_t *sum,
                 int32_t (*out)[COLUMNS]) {
    __m512i left[ROWS], right[ROWS];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) left[r] = right[r] = _mm512_set1_epi32(-128 * sum[r]);
    for (long k = 0; k < d_padded; k += 4, w += 4 * COLUMNS) {
        __m512i w_left = _mm512_loadu_si512(w), w_right = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            int32_t four;
            memcpy(&four, q + r * d_padded + k, 4);
            left[r] = _mm512_dpbusd_epi32(left[r], w_left, _mm512_set1_epi32(four));
            right[r] = _mm512_dpbusd_epi32(right[r], w_right, _mm512_set1_epi32(four));
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) { /* in memory, since GCC 12 keeps none of them in registers if they are used below */
        _mm512_storeu_si512(out[r], left[r]);
        _mm512_storeu_si512(out[r] + 16, right[r]);
    }
}

/* y = x Wᵀ + b: x (n, d) and y (n, v); w (v / COLUMNS, d_padded / 4, COLUMNS, 4) holds W over scale (v), whole, plus
   128, with anything in the columns beyond v; d_padded is d up to the next multiple of 16. b (v), or null for none. */
VNNI void linear(const float *x, const uint8_t *w, const float *scale, const float *b, float *y, long n, long d,
                 long v) {
    long d_padded = (d + 15) / 16 * 16, width = (WEIGHTS / d_padded + COLUMNS) / COLUMNS * COLUMNS;
    int8_t *q = malloc(CHUNK * d_padded); /* of any width, for which the stack may be too small */
    float of_row[CHUNK];
    int32_t sum[CHUNK], z[ROWS][COLUMNS];
    for (long at = 0; at < n; at += CHUNK, x += CHUNK * d, y += CHUNK * v) {
        long rows = n - at < CHUNK ? n - at : CHUNK;
        for (long r = 0; r < rows; r++) quantize(x + r * d, d, d_padded, q + r * d_padded, of_row + r, sum + r);
        for (long some = 0; some < v; some += width)
            for (long r = 0, R; r < rows; r += R) {
                R = rows - r >= ROWS ? ROWS : rows - r >= 8 ? 8 : rows - r >= 4 ? 4 : 1;
                for (long c = some; c < some + width && c < v; c += COLUMNS) {
                    const uint8_t *of_tile = w + c * d_padded;
                    if (R == ROWS) tile(ROWS, q + r * d_padded, of_tile, d_padded, sum + r, z);
                    else if (R == 8) tile(8, q + r * d_padded, of_tile, d_padded, sum + r, z);
                    else if (R == 4) tile(4, q + r * d_padded, of_tile, d_padded, sum + r, z);
                    else tile(1, q + r * d_padded, of_tile, d_padded, sum + r, z);
                    for (long j = 0; j < COLUMNS; j += 16) {
                        __mmask16 there = among(v - c - j);
                        __m512 by = _mm512_maskz_loadu_ps(there, scale + c + j);
                        __m512 plus = b ? _mm512_maskz_loadu_ps(there, b + c + j) : _mm512_setzero_ps();
                        for (long i = 0; i < R; i++) {
                            __m512 whole = _mm512_cvtepi32_ps(_mm512_loadu_si512(z[i] + j));
                            __m512 scaled = _mm512_mul_ps(whole, _mm512_set1_ps(of_row[r + i]));
                            _mm512_mask_storeu_ps(y + (r + i) * v + c + j, there, _mm512_fmadd_ps(scaled, by, plus));
                        }
                    }
                }
            }
    }
    free(q);
}

/* exp(x) for x ≤ 0, to 2 units of the last place: 2^n times a polynomial on |r| ≤ ln 2 / 2 (Cephes, expf). */
INLINE __m512 exponential(__m512 x) {
    __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87), _CMP_GE_OQ); /* not −∞, of what is masked */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x); /* ln 2 in two parts */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    const float of[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f, 1, 1};
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    for (int i = 0; i < 7; i++) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(of[i]));
    return _mm512_maskz_scalef_ps(counts, p, n);
}

/* 16 keys or values, or as many as are there, at an index, of type float or bfloat16, the upper half of a float. */
INLINE __m512 loaded(int narrow, const void *from, long i, __mmask16 there) {
    if (!narrow) return _mm512_maskz_loadu_ps(there, (const float *)from + i);
    __m512i upper = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, (const uint16_t *)from + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(upper, 16));
}

/* softmax(Q Kᵀ / √K) V: query (B, H, T, K), key and value (B, H, S, K), mask (B, H, T, S) or null, each with its
   strides in numbers, of which that of K is 1; out (B, T, H, K). size is B, H, T, S, K. */
INLINE void attention(const int narrow, const float *query, const void *key, const void *value, const uint8_t *mask,
                      float *out, const long *size, const long *of_q, const long *of_k, const long *of_v,
                      const long *of_m) {
    long B = size[0], H = size[1], T = size[2], S = size[3], K = size[4], S_padded = (S + 15) / 16 * 16;
    long bytes = narrow ? 2 : 4;
    float weight[S_padded], scale = 1 / sqrtf(K);
    for (long at = 0; at < B * H * T; at++) { /* in the order in which keys and values lie in memory */
        long b = at / T / H, h = at / T % H, t = at % T;
        const float *q = query + b * of_q[0] + h * of_q[1] + t * of_q[2];
        long k = b * of_k[0] + h * of_k[1], v = b * of_v[0] + h * of_v[1];
        for (long s = 0; s < S_padded; s++, k += of_k[2]) {
            weight[s] = -INFINITY;
            for (long i = 0; t == 0 && i < K * bytes; i += 64) { /* the next head, which lies in another page */
                _mm_prefetch((const char *)key + (k + of_k[1]) * bytes + i, _MM_HINT_T0);
                _mm_prefetch((const char *)value + (v + s * of_v[2] + of_v[1]) * bytes + i, _MM_HINT_T0);
            }
            if (s >= S || (mask && !mask[b * of_m[0] + h * of_m[1] + t * of_m[2] + s * of_m[3]])) continue;
            __m512 sum = _mm512_setzero_ps();
            for (long i = 0; i < K; i += 16) {
                __m512 part = loaded(narrow, key, k + i, among(K - i));
                sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(among(K - i), q + i), part, sum);
            }
            weight[s] = _mm512_reduce_add_ps(sum) * scale;
        }
        __m512 most = _mm512_loadu_ps(weight), total = _mm512_setzero_ps();
        for (long s = 16; s < S; s += 16) most = _mm512_max_ps(most, _mm512_loadu_ps(weight + s));
        most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        for (long s = 0; s < S; s += 16) {
            __m512 e = exponential(_mm512_sub_ps(_mm512_loadu_ps(weight + s), most));
            _mm512_storeu_ps(weight + s, e);
            total = _mm512_add_ps(total, e);
        }
        __m512 share = _mm512_set1_ps(1 / _mm512_reduce_add_ps(total));
        for (long i = 0; i < K; i += 64) { /* 64 numbers at a time, whose sums do not wait for one another */
            __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
            for (long s = 0; s < S; s++)
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) {
                    __m512 part = loaded(narrow, value, v + s * of_v[2] + i + 16 * j, among(K - i - 16 * j));
                    sum[j] = _mm512_fmadd_ps(_mm512_set1_ps(weight[s]), part, sum[j]);
                }
            float *y = out + ((b * T + t) * H + h) * K + i;
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                _mm512_mask_storeu_ps(y + 16 * j, among(K - i - 16 * j), _mm512_mul_ps(sum[j], share));
        }
    }
}

VNNI void attend(int narrow, const float *query, const void *key, const void *value, const uint8_t *mask, float *out,
                 const long *size, const long *of_q, const long *of_k, const long *of_v, const long *of_m) {
    if (narrow) attention(1, query, key, value, mask, out, size, of_q, of_k, of_v, of_m);
    else attention(0, query, key, value, mask, out, size, of_q, of_k, of_v, of_m);
}
#endif
