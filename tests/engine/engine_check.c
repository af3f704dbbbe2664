/* Compares the variants of tapis/engine/engine.c with the plain one, on a small random model.

   tests/engine/test_engine.py compiles and runs it, for other processors too. With EMULATE_VNNI, the instructions
   of AVX512-VNNI and AVX-VNNI are C functions, so that those variants run on any x86 CPU with AVX2. */

#include <stdio.h>

#ifdef EMULATE_VNNI
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Sums of four products of bytes without and with sign, in each lane of 32 bits. */
static __attribute__((noinline)) void emulate_dpbusd(void *totals, const void *x, const void *w, int n_lanes) {
    int32_t *t = totals;
    const uint8_t *unsigned_bytes = x;
    const int8_t *signed_bytes = w;
    for (int i = 0; i < 4 * n_lanes; i++) t[i / 4] += unsigned_bytes[i] * signed_bytes[i];
}

typedef int32_t emulated_512 __attribute__((vector_size(64)));
typedef int32_t emulated_256 __attribute__((vector_size(32)));

#define EMULATED_DPBUSD(type, totals, x, w)                                                                            \
    ({                                                                                                                 \
        type sums = (type)(totals), numbers = (type)(x), weights = (type)(w);                                          \
        emulate_dpbusd(&sums, &numbers, &weights, sizeof(type) / 4);                                                   \
        sums;                                                                                                          \
    })
#define EMULATED_LOAD(type, from)                                                                                      \
    ({                                                                                                                 \
        type loaded;                                                                                                   \
        memcpy(&loaded, from, sizeof loaded);                                                                          \
        loaded;                                                                                                        \
    })

#define __m512i emulated_512
#define _mm512_set1_epi32(x) ((emulated_512){} + (x))
#define _mm512_loadu_si512(from) EMULATED_LOAD(emulated_512, from)
#define _mm512_dpbusd_epi32(totals, x, w) EMULATED_DPBUSD(emulated_512, totals, x, w)
#define _mm256_dpbusd_avx_epi32(totals, x, w) EMULATED_DPBUSD(emulated_256, totals, x, w)
#define AVX512_VNNI_TARGET
#define AVX_VNNI_TARGET __attribute__((target("avx2,fma")))
#endif

#include "../../tapis/engine/engine.c"

enum { D = 20, HEADS = 2, D_FF = 37, VOCABULARY = 101, LAYERS = 2, SENTENCES = 70, LONGEST = 80, STEPS = 8, BEST = 6 };

static float random_number(void) { /* from -1 to 1, the same everywhere */
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    return (int32_t)state / 2147483648.0f;
}

static float *random_numbers(long n, float mean, float size) {
    float *numbers = malloc(n * sizeof(float));
    for (long i = 0; i < n; i++) numbers[i] = mean + size * random_number();
    return numbers;
}

static struct norm random_norm(void) { return (struct norm){random_numbers(D, 1, 0.3f), random_numbers(D, 0, 0.3f)}; }

static struct linear random_linear(long n_in, long n_out) {
    long depth = round_up(n_in, DEPTH), columns = round_up(n_out, PANEL);
    int8_t *weight = calloc(columns * depth, 1);
    int32_t *sums = calloc(columns, sizeof(int32_t));
    for (long c = 0; c < n_out; c++)
        for (long k = 0; k < n_in; k++) {
            /* Of the four that avx2 adds in 16 bits, those of either sign add up to 128 at most: one of the largest and
               three zeros, or four that are small. */
            int8_t w = k / 8 % 2 || k % 4 > 1 ? 32 * random_number() : k % 8 ? 0 : c % 2 ? 127 : -127;
            weight[c / PANEL * PANEL * depth + (k / 4 * PANEL + c % PANEL) * 4 + k % 4] = w;
            sums[c] += w;
        }
    float *scale = random_numbers(columns, 0.01f, 0.005f), *bias = random_numbers(columns, 0, 0.3f);
    return (struct linear){weight, sums, scale, bias, n_in, n_out};
}

static struct block *random_blocks(void) {
    struct block *blocks = calloc(LAYERS, sizeof(struct block));
    for (int l = 0; l < LAYERS; l++)
        blocks[l] = (struct block){
            random_norm(), random_norm(), random_norm(),
            random_linear(D, 3 * D), random_linear(D, D),
            random_linear(D, D), random_linear(D, 2 * D), random_linear(D, D),
            random_linear(D, D_FF), random_linear(D_FF, D),
        };
    return blocks;
}

/* Everything that searches compute: the logits of a few steps, in which sentences have two hypotheses that change
   places, the best continuations, and the log-probabilities and the attention of translations that are given. */
struct found {
    float logits[STEPS][2 * SENTENCES][VOCABULARY];
    float values[SENTENCES][BEST];
    int64_t places[SENTENCES][BEST];
    double log_p[SENTENCES];
    float weights[SENTENCES * LAYERS * HEADS * STEPS * LONGEST];
};

struct variant {
    const char *name;
    const struct functions *functions;
    int (*force)(const struct model *, const struct sentences *, const struct search *, const struct sentences *,
                 struct forced *);
};

#define VARIANT_OF(name) {#name, &functions_##name, force_##name}

static const struct variant plain = VARIANT_OF(plain);
#ifdef __x86_64__
static const struct variant avx2 = VARIANT_OF(avx2);
#ifdef EMULATE_VNNI
static const struct variant avx_vnni = VARIANT_OF(avx_vnni), avx512_vnni = VARIANT_OF(avx512_vnni);
#endif
#endif
#ifdef __aarch64__
#include <sys/auxv.h>
static const struct variant neon_dotprod = VARIANT_OF(neon_dotprod);
#endif

static const uint32_t MINUS_INFINITY = 0xff800000;

static float encodings[LONGEST + STEPS][D];

static void search(const struct variant *variant, const struct model *m, struct found *found) {
    /* The sources: short sentences, and a first one that is longer than the search or than a group of rows. */
    static int64_t tokens[SENTENCES * LONGEST], lengths[SENTENCES], starts[SENTENCES + 1];
    long longest = m->is_pre_norm ? LONGEST : 5;
    for (long i = 0; i < SENTENCES; i++) {
        lengths[i] = i ? 1 + i % 5 : longest;
        starts[i + 1] = starts[i] + lengths[i];
    }
    for (long i = 0; i < starts[SENTENCES]; i++) tokens[i] = i * 7 % VOCABULARY;
    for (long t = 0; t < LONGEST + STEPS; t++)
        for (long i = 0; i < D; i++) encodings[t][i] = (t * 5 + i * 13) % 17 / 17.0f;
    bf16 *keys_values = malloc(LAYERS * starts[SENTENCES] * 2 * D * sizeof(bf16));
    struct source source = {keys_values, starts, starts[SENTENCES], longest};
    struct sentences sources = {tokens, lengths, SENTENCES};
    variant->functions->encode(m, &sources, encodings[0], &source);

    /* The steps: two hypotheses of each sentence, which change places now and then. */
    static int64_t last[2 * SENTENCES], parents[STEPS][2 * SENTENCES];
    struct step history[STEPS];
    for (long t = 0; t < STEPS; t++) {
        long n = t ? 2 * SENTENCES : SENTENCES;
        for (long r = 0; r < n; r++) {
            last[r] = (r * 31 + t * 5) % VOCABULARY;
            parents[t][r] = t == 1 ? r / 2 : r ^ 1;
        }
        history[t] = (struct step){malloc(LAYERS * n * 2 * D * sizeof(bf16)), t % 3 ? parents[t] : NULL, NULL, n};
        variant->functions->step(m, &source, history, t + 1, last, encodings[t], found->logits[t][0]);
    }

    /* The best continuations, where a token and a hypothesis are excluded */
    static float scores[2 * SENTENCES];
    for (long r = 0; r < 2 * SENTENCES; r++) {
        scores[r] = r == 3 ? float_of_bits(MINUS_INFINITY) : -r / 9.0f;
        found->logits[STEPS - 1][r][1] = float_of_bits(MINUS_INFINITY);
    }
    variant->functions->best(found->logits[STEPS - 1][0], scores, SENTENCES, 2, VOCABULARY, BEST, found->values[0],
                             found->places[0]);

    for (long t = 0; t < STEPS; t++) free(history[t].keys_values);
    free(keys_values);

    /* Forced decoding of translations of 1 to STEPS tokens */
    static int64_t targets[SENTENCES * STEPS], target_lengths[SENTENCES];
    long n_tokens = 0;
    for (long i = 0; i < SENTENCES; i++) {
        target_lengths[i] = 1 + i * 3 % STEPS;
        for (long t = 0; t < target_lengths[i]; t++)
            targets[n_tokens++] = t + 1 < target_lengths[i] ? EOS + 1 + (i + t * 11) % (VOCABULARY - EOS - 1) : EOS;
    }
    struct sentences given = {targets, target_lengths, SENTENCES};
    struct search settings = {.beam = 1, .encodings = encodings[0]};
    struct forced forced = {found->log_p, found->weights};
    if (variant->force(m, &sources, &settings, &given, &forced) != DONE) exit(2);
}

static int n_compared = 0;

/* Whether a variant finds something else than the plain one, but for rounding. */
static int differs(const struct variant *variant, const struct model *m, const struct found *wanted) {
    static struct found found;
    memset(&found, 0, sizeof found);
    search(variant, m, &found);

    double error = 0, size = 0;
    for (long t = 0; t < STEPS; t++)
        for (long r = 0; r < 2 * SENTENCES; r++)
            for (long v = 0; v < VOCABULARY; v++) {
                if (t == STEPS - 1 && v == 1) continue; /* -infinity */
                double a = found.logits[t][r][v], b = wanted->logits[t][r][v];
                error += (a - b) * (a - b);
                size += b * b;
            }
    for (long i = 0; i < SENTENCES; i++) {
        error += (found.log_p[i] - wanted->log_p[i]) * (found.log_p[i] - wanted->log_p[i]);
        size += wanted->log_p[i] * wanted->log_p[i];
    }
    for (long i = 0; i < (long)(sizeof found.weights / sizeof(float)); i++) {
        double a = found.weights[i], b = wanted->weights[i];
        error += (a - b) * (a - b);
        size += b * b;
    }
    long n_other = 0;
    for (long i = 0; i < SENTENCES; i++)
        for (long j = 0; j < BEST; j++) n_other += found.places[i][j] != wanted->places[i][j];
    printf("%s: relative error %.1e, %ld of %d places differ\n", variant->name, sqrt(error / size), n_other,
           SENTENCES * BEST);
    n_compared++;

    /* A number half-way between two roundings may be rounded the other way. */
    return !(error < 1e-5 * size) || n_other > SENTENCES * BEST / 50;
}

int main(void) {
    struct model model = {
        D, HEADS, 1, LAYERS, LAYERS, random_blocks(), random_blocks(), random_norm(), random_norm(),
        random_numbers(VOCABULARY * D, 0, 1), random_numbers(VOCABULARY * D, 0, 1), random_linear(D, VOCABULARY), 1e-5f,
    };
    static struct found wanted;
    int failed = 0;
    for (model.is_pre_norm = 0; model.is_pre_norm < 2; model.is_pre_norm++) {
        search(&plain, &model, &wanted);
#ifdef __x86_64__
        failed += differs(&avx2, &model, &wanted);
#ifdef EMULATE_VNNI
        failed += differs(&avx_vnni, &model, &wanted);
        failed += differs(&avx512_vnni, &model, &wanted);
#endif
#endif
#ifdef __aarch64__
        if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) failed += differs(&neon_dotprod, &model, &wanted);
#endif
    }
    if (failed) return 1;
    printf("%d variants agree with the plain one\n", n_compared);
    return 0;
}
