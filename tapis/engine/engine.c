/* The Transformer in 8 bits for translating on CPUs: a whole search in one call.

   engine.py calls `translate_VARIANT` and `force_VARIANT` through ctypes, from any number of threads. A search has
   thousands of steps, and each step of a small model has sixty operations of microseconds. One by one, torch takes
   longer to start them than to compute them. Only the search for the terms of a glossary is in Python: it calls
   `begin_stepping_VARIANT`, `next_logits` for each step, and `end_stepping`.

   search.h holds the search, and transformer.h the model. The model is compiled once for each kind of
   CPU below, and engine.py chooses the variant at run time. The variants differ in the width of their vectors and in
   the one instruction that everything depends on, `add_products`:

       totals[c] += x[0] w[c][0] + x[1] w[c][1] + x[2] w[c][2] + x[3] w[c][3]    for the columns c of a vector

   It multiplies four numbers of a row, 8 bits each, with four weights of each of several columns of Wᵀ; in avx2 it is
   some instructions, for eight. Weights lie in the order in which it reads them: panels of 32 columns, and in each
   panel four numbers of every column side by side.

       byte   |   0   1   2   3 |   4   5   6   7 | ... | 124 125 126 127 | 128 129 130 131 | ...
       column |   0   0   0   0 |   1   1   1   1 | ... |  31  31  31  31 |   0   0   0   0 | ...
       depth  |   0   1   2   3 |   0   1   2   3 | ... |   0   1   2   3 |   4   5   6   7 | ...

   Integer sums are exact. Variants differ only in the order of floating-point sums. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYOUT_VERSION = 6, /* to be increased when the order of packed weights or a function's arguments change */
    PANEL = 32,         /* columns of packed weights that lie side by side */
    DEPTH = 8,          /* of packed weights, and of the rows that they multiply: a multiple of it */
    ROWS_AT_ONCE = 64,  /* that go through all layers together, so that their activations stay in L2 */
};

static const float LOWEST = -1e30f; /* below every number but -∞ */

/* The model. engine.py mirrors these structures, field by field. */

struct norm {
    const float *alpha, *bias; /* (d) */
};

struct linear {
    const int8_t *weight;       /* panels of the weights, with zeros behind the last column */
    const int32_t *column_sums; /* of the weights of each column */
    const float *scale;         /* of each column: what it was divided by before rounding */
    const float *bias;          /* of each column */
    long n_in, n_out;
};

struct block { /* of an encoder, without source_…, or of a decoder */
    struct norm self_norm, source_norm, feed_forward_norm;
    struct linear self_qkv, self_o; /* queries, keys and values in one product */
    struct linear source_q, source_kv, source_o;
    struct linear linear_1, linear_2;
};

struct model {
    long d, n_heads, is_pre_norm, n_encoder_layers, n_decoder_layers;
    const struct block *encoder, *decoder;
    struct norm encoder_norm, decoder_norm; /* of the sums that leave the stacks; unused unless is_pre_norm */
    const float *source_embedding, *target_embedding; /* (V, d) */
    struct linear projection;
    float epsilon;
};

/* What a search keeps: keys and values as bf16, the upper halves of floats. */

typedef uint16_t bf16;

struct source {
    bf16 *keys_values;      /* (decoder layers, n_tokens, 2, d): of each token of all sentences */
    const int64_t *starts;  /* (sentences + 1): where each sentence begins, and n_tokens */
    long n_tokens, longest; /* of the sentences */
};

/* Keys and values are never moved: a hypothesis finds its past from parent to parent. */
struct step {
    bf16 *keys_values;      /* (decoder layers, n_rows, 2, d): of the last token of each hypothesis */
    const int64_t *parents; /* (n_rows): the row of each at the step before; null for the same row */
    /* (decoder layers, n_rows, heads, longest): what each attends to in the source; null if nobody asks */
    float *weights;
    long n_rows;
};

/* Working memory */

struct quantized {
    uint8_t *rows; /* with OFFSET added */
    float *scale;  /* of each row */
};

struct scratch {
    float *x;      /* (n, d): the sum to which the sublayers add */
    float *narrow; /* (n, d) */
    float *wide;   /* (n, 3 d) or (n, d_ff) */
    struct quantized quantized;
    bf16 *keys_values; /* (n, 2, d) */
    int64_t *sentence; /* (n) */
    const bf16 **positions;
    float *scores; /* (heads, positions) */
};

enum epilogue { STORE, ADD_TO_Y, RELU }; /* what a linear layer does with its result */

static long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

static struct scratch new_scratch(const struct model *m, long n_rows, long n_positions) {
    long d = m->d, d_ff = m->decoder[0].linear_1.n_out; /* the same in all layers */
    long wide = d_ff > 3 * d ? d_ff : 3 * d;
    return (struct scratch){
        .x = malloc(n_rows * d * sizeof(float)),
        .narrow = malloc(n_rows * d * sizeof(float)),
        .wide = malloc(n_rows * wide * sizeof(float)),
        .quantized = {malloc(n_rows * round_up(wide, DEPTH)), malloc(n_rows * sizeof(float))},
        .keys_values = malloc(n_rows * 2 * d * sizeof(bf16)),
        .sentence = malloc(n_rows * sizeof(int64_t)),
        .positions = malloc(n_positions * sizeof(bf16 *)),
        .scores = malloc(m->n_heads * n_positions * sizeof(float)),
    };
}

static int has_memory(const struct scratch *s) {
    return s->x && s->narrow && s->wide && s->quantized.rows && s->quantized.scale && s->keys_values && s->sentence &&
           s->positions && s->scores;
}

static void free_scratch(struct scratch *s) {
    free(s->x), free(s->narrow), free(s->wide), free(s->quantized.rows), free(s->quantized.scale);
    free(s->keys_values), free(s->sentence), free(s->positions), free(s->scores);
}

/* Floats and their bits */

static inline float float_of_bits(uint32_t bits) {
    union {
        uint32_t bits;
        float number;
    } both = {bits};
    return both.number;
}

static const uint32_t NONE = 0xff800000; /* the bits of −∞ */

/* By its bits, since compilers take every number as finite. */
static inline int is_finite(float x) {
    union {
        float number;
        uint32_t bits;
    } both = {x};
    return (both.bits & 0x7f800000) != 0x7f800000;
}

static inline float to_float(bf16 half) { return float_of_bits((uint32_t)half << 16); }

static inline bf16 to_bf16(float x) { /* to nearest, ties to even */
    union {
        float number;
        uint32_t bits;
    } both = {x};
    return (both.bits + 0x7fff + (both.bits >> 16 & 1)) >> 16;
}

#include "search.h"

/* engine.py compares these with its own, so as not to use a file that was compiled from another version. */
const long layout[] = {LAYOUT_VERSION,       PANEL,                 DEPTH,
                       sizeof(struct norm),  sizeof(struct linear), sizeof(struct block),  sizeof(struct model),
                       sizeof(struct source), sizeof(struct step), sizeof(struct sentences),
                       sizeof(struct search), sizeof(struct results), sizeof(struct forced)};

/* The variants. Each defines
     VARIANT       its name
     TARGET        the attribute that lets compilers use its instructions
     INTEGERS      its vector of 32-bit integers
     TILE_ROWS     rows that multiply_tile takes at once, at most 12: as many as there are registers for
     OFFSET        what is added to the numbers of a row: 128 if add_products takes them without sign, else 0
     STEP          numbers of a row that add_products takes: 4, or 8
     RUNS          whether the CPU has these instructions
     add_products  as above; w are sizeof(INTEGERS) weights */

static inline int32_t four_of(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return four;
}

#define JOIN(name, variant) name##_##variant
#define JOIN_EXPANDED(name, variant) JOIN(name, variant)
#define FUNCTION(name) JOIN_EXPANDED(name, VARIANT)
#define INLINE TARGET static inline __attribute__((always_inline))

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

static int has_avx_vnni(void) { /* which compilers have had no name for */
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

#define HAS(name) __builtin_cpu_supports(#name)

typedef int32_t integers_512 __attribute__((vector_size(64)));
typedef int32_t integers_256 __attribute__((vector_size(32)));

#ifndef AVX512_VNNI_TARGET /* a test defines them, to run these variants on any CPU */
#ifdef __clang__ /* which has no such option, and would ignore all of them */
#define PREFER_512 ""
#else
#define PREFER_512 ",prefer-vector-width=512"
#endif
#define AVX512_VNNI_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma" PREFER_512)))
#define AVX_VNNI_TARGET __attribute__((target("avx2,fma,avxvnni")))
#endif

/* Servers since 2019, AMD's CPUs since 2022 */
#define VARIANT avx512_vnni
#define TARGET AVX512_VNNI_TARGET
#define RUNS                                                                                                           \
    (HAS(avx512f) && HAS(avx512bw) && HAS(avx512dq) && HAS(avx512vl) && HAS(avx512vnni) && HAS(fma) && HAS(avx2))
#define INTEGERS integers_512
#define TILE_ROWS 12
#define OFFSET 128
#define STEP 4
INLINE INTEGERS FUNCTION(add_products)(INTEGERS totals, const uint8_t *x, const int8_t *w) {
    return (INTEGERS)_mm512_dpbusd_epi32((__m512i)totals, _mm512_set1_epi32(four_of(x)), _mm512_loadu_si512(w));
}
#include "transformer.h"

/* Intel's laptops since 2021; older compilers do not know the instruction */
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define VARIANT avx_vnni
#define TARGET AVX_VNNI_TARGET
#define RUNS (HAS(avx2) && HAS(fma) && has_avx_vnni())
#define INTEGERS integers_256
#define TILE_ROWS 3
#define OFFSET 128
#define STEP 4
INLINE INTEGERS FUNCTION(add_products)(INTEGERS totals, const uint8_t *x, const int8_t *w) {
    return (INTEGERS)_mm256_dpbusd_avx_epi32((__m256i)totals, _mm256_set1_epi32(four_of(x)), _mm256_loadu_si256((__m256i *)w));
}
#include "transformer.h"
#endif

/* Nearly every x86 CPU since 2015. maddubs adds products of two numbers in 16 bits. The sums of two such are added
   there, too, since each instruction that widens them takes as long as one that multiplies. The weights make sure that
   all of it fits (`quantize_rows` in weights.py): of the four of a column that meet in one sum, those of either sign
   add up to 128 at most, and 255 · 128 < 2¹⁵. */
#define VARIANT avx2
#define TARGET __attribute__((target("avx2,fma")))
#define RUNS (HAS(avx2) && HAS(fma))
#define INTEGERS integers_256
#define TILE_ROWS 2
#define OFFSET 128
#define STEP 8
INLINE INTEGERS FUNCTION(add_products)(INTEGERS totals, const uint8_t *x, const int8_t *w) {
    __m256i sums_of_four = _mm256_add_epi16(
        _mm256_maddubs_epi16(_mm256_set1_epi32(four_of(x)), _mm256_loadu_si256((__m256i *)w)),
        _mm256_maddubs_epi16(_mm256_set1_epi32(four_of(x + 4)), _mm256_loadu_si256((__m256i *)(w + 4 * PANEL))));
    return totals + (INTEGERS)_mm256_madd_epi16(sums_of_four, _mm256_set1_epi16(1));
}
#include "transformer.h"
#endif

typedef int32_t integers_128 __attribute__((vector_size(16)));
typedef int16_t shorts_128 __attribute__((vector_size(16)));

#ifdef __wasm_simd128__
#include <wasm_simd128.h>

/* Browsers. Bytes 0 and 2 of each column, and 1 and 3, are widened to 16 bits, multiplied and added in pairs. The dot
   product of relaxed SIMD would be exact, too, on |x| and weights with the sign of x. It would need a second module,
   and was no faster on a CPU without VNNI. */
#define VARIANT wasm_simd128
#define TARGET
#define RUNS 1
#define INTEGERS integers_128
#define TILE_ROWS 2
#define OFFSET 0
#define STEP 4
INLINE INTEGERS FUNCTION(add_products)(INTEGERS totals, const uint8_t *x, const int8_t *w) {
    v128_t four = wasm_i32x4_splat(four_of(x)), columns = wasm_v128_load(w);
    v128_t even_x = wasm_i16x8_shr(wasm_i16x8_shl(four, 8), 8), odd_x = wasm_i16x8_shr(four, 8);
    v128_t even_w = wasm_i16x8_shr(wasm_i16x8_shl(columns, 8), 8), odd_w = wasm_i16x8_shr(columns, 8);
    return totals + (INTEGERS)wasm_i32x4_dot_i16x8(even_x, even_w) + (INTEGERS)wasm_i32x4_dot_i16x8(odd_x, odd_w);
}
#include "transformer.h"
#endif

#ifdef __aarch64__
#include <arm_neon.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

static int has_dotprod(void) {
#ifdef __linux__
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
#elif defined(__APPLE__)
    return 1; /* since the first */
#else
    return 0;
#endif
}

/* Apple's CPUs, Graviton 2 and later, phones since 2018 */
#define VARIANT neon_dotprod
#define RUNS has_dotprod()
#ifdef __clang__
#define TARGET __attribute__((target("dotprod")))
#else
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#endif
#define INTEGERS integers_128
#define TILE_ROWS 2
#define OFFSET 0
#define STEP 4
INLINE INTEGERS FUNCTION(add_products)(INTEGERS totals, const uint8_t *x, const int8_t *w) {
    return (INTEGERS)vdotq_s32((int32x4_t)totals, vreinterpretq_s8_s32(vdupq_n_s32(four_of(x))), vld1q_s8(w));
}
#include "transformer.h"
#endif

/* Any other CPU, in C alone. Bytes 0 and 2 of each column, and 1 and 3, are multiplied in lanes of 16 bits, in which
   sums of two products fit; then the two sums of a column are added. Shifts to the left and back extend the sign. */
#define VARIANT plain
#define TARGET
#define RUNS 1
#define INTEGERS integers_128
#define TILE_ROWS 1
#define OFFSET 0
#define STEP 4
INLINE INTEGERS FUNCTION(add_products)(INTEGERS totals, const uint8_t *x, const int8_t *w) {
    shorts_128 four = (shorts_128)((integers_128){} + four_of(x)), columns;
    memcpy(&columns, w, sizeof columns);
    shorts_128 sums_of_two = (four << 8 >> 8) * (columns << 8 >> 8) + (four >> 8) * (columns >> 8);
    return totals + ((INTEGERS)sums_of_two << 16 >> 16) + ((INTEGERS)sums_of_two >> 16);
}
#include "transformer.h"
