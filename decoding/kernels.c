/* Two kernels for translating on a CPU, each in one pass over memory: int8 linear layers and attention for few queries.

   decoding/inference.py calls `linear` and `attend` through ctypes, from any number of threads. They need an x86 CPU
   with AVX512-VNNI, and GCC or Clang to compile them. Elsewhere this file is empty. Without the kernels torch
   computes the same: `linear` replaces the last lines of `Int8Linear.forward`, and `attend` replaces
   `scaled_dot_product_attention` in model.py. tests/decoding/test_inference.py compares them.

   torch has the int8 product, but rounding its input and scaling its output takes ten more operations. Those cost
   two thirds of the product's own time, and each of them waits for Python's global lock. */

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) VNNI

/* The first n of a vector's 16 lanes; all of them for n ≥ 16, none for n ≤ 0. */
INLINE __mmask16 first_lanes(long n) { return n >= 16 ? 0xffff : n > 0 ? (1u << n) - 1 : 0; }

/* Linear layers: y = x Wᵀ + b, with x (n, d), W (v, d) and y (n, v).

   A chunk of 132 rows of x is rounded to int8 and multiplied by one stripe of W after another:

                                    W, packed in panels of 32 columns

                                     |<--- stripe: 256 KiB, in L2 --->|
                                     +---------+---------+-- ... -----+---------+-- ...
                                     | panel   | panel   |            |         |
                                   d |         |         |            |         |
                                     |         |         |            |         |
                   d                 +---------+---------+-- ... -----+---------+-- ...
         +---------------------+     +---------+---------+-- ... -----+---------+-- ...
      12 | in L1               |     | tile 1  | tile 2  |            |         |
         +---------------------+     +---------+---------+-- ... -----+---------+-- ...
      12 |                     |     |         |         |            |         |
         +---------------------+     +---------+---------+-- ... -----+---------+-- ...
         :                     :     :         :         :            :         :
           x: 132 rows, int8                              y

   Within a stripe the tiles go left to right, then down to the next 12 rows. The 12 rows of x stay in L1 from one tile
   to the next. The stripe stays in L2 for all 11 row tiles of the chunk, so each weight is read from memory once per
   chunk.

   A tile of y is 12 rows x 32 columns. It sums over the whole depth d in registers: 12 rows x 2 vectors of 16 int32
   are 24 accumulators, which leaves room for two vectors of weights and one of input among the 32 registers.

   Weights are packed in the order in which a tile reads them. Each step of 4 along d takes 32 columns x 4 depth, 128
   bytes. The instruction vpdpbusd multiplies 4 bytes in each lane and adds their sum to the lane's accumulator:

      byte  |   0   1   2   3 |   4   5   6   7 | ... |  60  61  62  63 |  64  65  66  67 | ... | 124 125 126 127 |
      column|   0   0   0   0 |   1   1   1   1 | ... |  15  15  15  15 |  16  16  16  16 | ... |  31  31  31  31 |
      depth |   k k+1 k+2 k+3 |   k k+1 k+2 k+3 | ... |   k k+1 k+2 k+3 |   k k+1 k+2 k+3 | ... |   k k+1 k+2 k+3 |
      lane  |        0        |        1        | ... |        15       |        0        | ... |        15       |
            |<---------------------- left vector ---------------------->|<------------- right vector ------------>|
*/
enum {
    TILE_ROWS = 12,
    TILE_COLUMNS = 32,
    CHUNK_ROWS = 11 * TILE_ROWS,
    STRIPE_BYTES = 256 * 1024, /* of packed weights */
};

/* Rounds a row x of d numbers to int8, with zeros from d to d_padded. The scale is the largest magnitude over 127;
   q_sum is the sum of the rounded row. */
INLINE void round_row(const float *x, long d, long d_padded, int8_t *q, float *scale, int32_t *q_sum) {
    /* The scale. A floor keeps it positive for a row of zeros. */
    __m512 largest = _mm512_set1_ps(1e-30f);
    for (long i = 0; i < d; i += 16)
        largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(first_lanes(d - i), x + i)));
    *scale = _mm512_reduce_max_ps(largest) / 127;

    /* Round to nearest, ties to even, as torch.round does. */
    __m512 inverse_scale = _mm512_set1_ps(1 / *scale);
    __m512i sums = _mm512_setzero_si512();
    for (long i = 0; i < d_padded; i += 16) {
        __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(d - i), x + i), inverse_scale);
        __m512i rounded = _mm512_cvtps_epi32(scaled);
        sums = _mm512_add_epi32(sums, rounded);
        _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(rounded));
    }
    *q_sum = _mm512_reduce_add_epi32(sums);
}

/* Multiplies `rows` rows of q by a panel of packed weights into product, in int32. `rows` must be a constant, so that
   the loops unroll and the accumulators stay in registers. */
INLINE void multiply_tile(const int rows, const int8_t *q, const int32_t *q_sum, const uint8_t *panel, long d_padded,
                          int32_t (*product)[TILE_COLUMNS]) {
    __m512i left[TILE_ROWS], right[TILE_ROWS];

    /* vpdpbusd multiplies unsigned bytes by signed ones, so the weights are stored with 128 added:
       Σ q w = Σ q (w + 128) - 128 Σ q. The last term is where the sums start. */
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) left[r] = right[r] = _mm512_set1_epi32(-128 * q_sum[r]);

    /* Each step broadcasts 4 bytes of a row to all lanes, against 4 bytes of each of 32 columns. */
    for (long k = 0; k < d_padded; k += 4, panel += 4 * TILE_COLUMNS) {
        __m512i w_left = _mm512_loadu_si512(panel), w_right = _mm512_loadu_si512(panel + 64);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            int32_t q_bytes;
            memcpy(&q_bytes, q + r * d_padded + k, 4);
            left[r] = _mm512_dpbusd_epi32(left[r], w_left, _mm512_set1_epi32(q_bytes));
            right[r] = _mm512_dpbusd_epi32(right[r], w_right, _mm512_set1_epi32(q_bytes));
        }
    }

    /* Through memory: GCC 12 keeps no accumulator in a register if the scaling uses it directly. */
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_si512(product[r], left[r]);
        _mm512_storeu_si512(product[r] + 16, right[r]);
    }
}

/* Multiplies a tile of 12, 8, 4 or 1 rows. With 12 and 1 alone, up to 11 last rows would be multiplied one by one. */
INLINE void multiply_rows(long rows, const int8_t *q, const int32_t *q_sum, const uint8_t *panel, long d_padded,
                          int32_t (*product)[TILE_COLUMNS]) {
    switch (rows) {
    case TILE_ROWS: multiply_tile(TILE_ROWS, q, q_sum, panel, d_padded, product); break;
    case 8: multiply_tile(8, q, q_sum, panel, d_padded, product); break;
    case 4: multiply_tile(4, q, q_sum, panel, d_padded, product); break;
    default: multiply_tile(1, q, q_sum, panel, d_padded, product);
    }
}

INLINE long tile_rows(long rows_left) {
    return rows_left >= TILE_ROWS ? TILE_ROWS : rows_left >= 8 ? 8 : rows_left >= 4 ? 4 : 1;
}

/* y = product * x_scale * w_scale + bias, for a tile whose first `columns` columns exist. Rows of y are v apart. */
INLINE void scale_tile(long rows, long columns, int32_t (*product)[TILE_COLUMNS], const float *x_scale,
                       const float *w_scale, const float *bias, float *y, long v) {
    for (long j = 0; j < TILE_COLUMNS; j += 16) {
        __mmask16 lanes = first_lanes(columns - j);
        __m512 column_scale = _mm512_maskz_loadu_ps(lanes, w_scale + j);
        __m512 column_bias = bias ? _mm512_maskz_loadu_ps(lanes, bias + j) : _mm512_setzero_ps();
        for (long r = 0; r < rows; r++) {
            __m512 sums = _mm512_cvtepi32_ps(_mm512_loadu_si512(product[r] + j));
            __m512 row_scaled = _mm512_mul_ps(sums, _mm512_set1_ps(x_scale[r]));
            _mm512_mask_storeu_ps(y + r * v + j, lanes, _mm512_fmadd_ps(row_scaled, column_scale, column_bias));
        }
    }
}

/* y = x Wᵀ + bias: x (n, d), y (n, v), bias (v) or null. W is int8 times w_scale (v), packed with 128 added as
   packed (v_padded / 32, d_padded / 4, 32, 4). d_padded is d rounded up to a multiple of 16 and v_padded is v rounded
   up to a multiple of 32. The packed columns beyond v may hold anything. */
VNNI void linear(const float *x, const uint8_t *packed, const float *w_scale, const float *bias, float *y, long n,
                 long d, long v) {
    long d_padded = (d + 15) / 16 * 16;
    long stripe_columns = (STRIPE_BYTES / d_padded + TILE_COLUMNS) / TILE_COLUMNS * TILE_COLUMNS;

    /* The rounded rows of a chunk. Their size depends on d, and a wide layer's would overflow a thread's stack. */
    int8_t *q = malloc(CHUNK_ROWS * d_padded);
    float x_scale[CHUNK_ROWS];
    int32_t q_sum[CHUNK_ROWS], product[TILE_ROWS][TILE_COLUMNS];

    for (long chunk = 0; chunk < n; chunk += CHUNK_ROWS, x += CHUNK_ROWS * d, y += CHUNK_ROWS * v) {
        long chunk_rows = n - chunk < CHUNK_ROWS ? n - chunk : CHUNK_ROWS;
        for (long r = 0; r < chunk_rows; r++)
            round_row(x + r * d, d, d_padded, q + r * d_padded, x_scale + r, q_sum + r);

        for (long stripe = 0; stripe < v; stripe += stripe_columns)
            for (long r = 0, rows; r < chunk_rows; r += rows) {
                rows = tile_rows(chunk_rows - r);
                for (long c = stripe; c < stripe + stripe_columns && c < v; c += TILE_COLUMNS) {
                    const uint8_t *panel = packed + c * d_padded;
                    const float *panel_bias = bias ? bias + c : NULL;
                    multiply_rows(rows, q + r * d_padded, q_sum + r, panel, d_padded, product);
                    scale_tile(rows, v - c, product, x_scale + r, w_scale + c, panel_bias, y + r * v + c, v);
                }
            }
    }
    free(q);
}

/* exp(x) for x ≤ 0, accurate to 2 units in the last place, and 0 below −87, also for −∞. With n = round(x / ln 2) and
   r = x − n ln 2, it is 2ⁿ times a polynomial for exp(r) on |r| ≤ ln 2 / 2 (Cephes, expf). */
INLINE __m512 exponential(__m512 x) {
    __mmask16 is_positive = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87), _CMP_GE_OQ);

    /* ln 2 in two parts: the product of n and the first is exact. */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);

    const float coefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                                  5.0000001201e-1f, 1,                1};
    __m512 polynomial = _mm512_set1_ps(1.9875691500e-4f);
    for (int i = 0; i < 7; i++) polynomial = _mm512_fmadd_ps(polynomial, r, _mm512_set1_ps(coefficients[i]));
    return _mm512_maskz_scalef_ps(is_positive, polynomial, n);
}

/* Up to 16 keys or values from an index on, as floats. A bfloat16 is the upper half of a float. */
INLINE __m512 load_floats(const int is_bf16, const void *numbers, long index, __mmask16 lanes) {
    if (!is_bf16) return _mm512_maskz_loadu_ps(lanes, (const float *)numbers + index);
    __m512i halves = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)numbers + index));
    return _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
}

/* Replaces S scores, padded with −∞ to a multiple of 16, by exp(score − largest score). Returns 1 / their sum. */
INLINE float exponentiate(float *scores, long S) {
    __m512 largest = _mm512_loadu_ps(scores);
    for (long s = 16; s < S; s += 16) largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + s));
    largest = _mm512_set1_ps(_mm512_reduce_max_ps(largest));

    __m512 sums = _mm512_setzero_ps();
    for (long s = 0; s < S; s += 16) {
        __m512 exponentials = exponential(_mm512_sub_ps(_mm512_loadu_ps(scores + s), largest));
        _mm512_storeu_ps(scores + s, exponentials);
        sums = _mm512_add_ps(sums, exponentials);
    }
    return 1 / _mm512_reduce_add_ps(sums);
}

/* `attend` for a constant is_bf16. */
INLINE void attend_as(const int is_bf16, const float *query, const void *key, const void *value, const uint8_t *mask,
                      float *out, const long *sizes, const long *query_strides, const long *key_strides,
                      const long *value_strides, const long *mask_strides) {
    long B = sizes[0], H = sizes[1], T = sizes[2], S = sizes[3], K = sizes[4], S_padded = (S + 15) / 16 * 16;
    long bytes = is_bf16 ? 2 : 4;
    float weights[S_padded], scale = 1 / sqrtf(K);

    /* One query after another, in the order in which keys and values lie in memory. */
    for (long i = 0; i < B * H * T; i++) {
        long b = i / T / H, h = i / T % H, t = i % T;
        const float *q = query + b * query_strides[0] + h * query_strides[1] + t * query_strides[2];
        long k = b * key_strides[0] + h * key_strides[1], v = b * value_strides[0] + h * value_strides[1];

        /* Scores: q · k / √K for each position s, −∞ where it is masked and in the padding. */
        for (long s = 0; s < S_padded; s++, k += key_strides[2]) {
            weights[s] = -INFINITY;

            /* Prefetch the next head, which lies in another page. One query per head is enough. */
            for (long byte = 0; t == 0 && byte < K * bytes; byte += 64) {
                _mm_prefetch((const char *)key + (k + key_strides[1]) * bytes + byte, _MM_HINT_T0);
                _mm_prefetch((const char *)value + (v + s * value_strides[2] + value_strides[1]) * bytes + byte,
                             _MM_HINT_T0);
            }
            if (s >= S) continue;
            if (mask && !mask[b * mask_strides[0] + h * mask_strides[1] + t * mask_strides[2] + s * mask_strides[3]])
                continue;

            __m512 sums = _mm512_setzero_ps();
            for (long j = 0; j < K; j += 16) {
                __m512 keys = load_floats(is_bf16, key, k + j, first_lanes(K - j));
                sums = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(first_lanes(K - j), q + j), keys, sums);
            }
            weights[s] = _mm512_reduce_add_ps(sums) * scale;
        }

        /* Softmax. The outputs are divided by the sum of the weights, once each, so the weights need not be. */
        __m512 inverse_sum = _mm512_set1_ps(exponentiate(weights, S));

        /* Output: the sum of weight times value over s. Four vectors at a time, since each addition to a vector waits
           for the one before. */
        for (long j = 0; j < K; j += 64) {
            __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
            for (long s = 0; s < S; s++)
#pragma GCC unroll 4
                for (int u = 0; u < 4; u++) {
                    long index = v + s * value_strides[2] + j + 16 * u;
                    __m512 values = load_floats(is_bf16, value, index, first_lanes(K - j - 16 * u));
                    sums[u] = _mm512_fmadd_ps(_mm512_set1_ps(weights[s]), values, sums[u]);
                }
            float *y = out + ((b * T + t) * H + h) * K + j;
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++)
                _mm512_mask_storeu_ps(y + 16 * u, first_lanes(K - j - 16 * u), _mm512_mul_ps(sums[u], inverse_sum));
        }
    }
}

/* softmax(Q Kᵀ / √K) V: query (B, H, T, K), key and value (B, H, S, K), mask (B, H, T, S) or null, out (B, T, H, K).

   query is float; key and value are bfloat16 if is_bf16, else float. sizes is B, H, T, S, K. Strides count numbers, not
   bytes, and the stride of K must be 1. The mask allows at least one position to each query. */
VNNI void attend(int is_bf16, const float *query, const void *key, const void *value, const uint8_t *mask, float *out,
                 const long *sizes, const long *query_strides, const long *key_strides, const long *value_strides,
                 const long *mask_strides) {
    if (is_bf16)
        attend_as(1, query, key, value, mask, out, sizes, query_strides, key_strides, value_strides, mask_strides);
    else
        attend_as(0, query, key, value, mask, out, sizes, query_strides, key_strides, value_strides, mask_strides);
}
#endif
