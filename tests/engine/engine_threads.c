/* Several threads translate with one model at the same time, each in a variant, and find what one thread finds alone.

   tests/engine/test_engine.py compiles it with ThreadSanitizer, which reports what two threads write unguarded. */

#define main check_main
#include "engine_check.c"
#undef main

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 3, LIMIT = 12 };

struct work {
    const struct model *model;
    int64_t ids[SENTENCES * LIMIT];
    long lengths[SENTENCES];
    double log_p[SENTENCES];
};

static void *translate_and_force(void *argument) {
    struct work *work = argument;
    int64_t tokens[3 * SENTENCES], lengths[SENTENCES], limits[SENTENCES];
    for (long i = 0, n = 0; i < SENTENCES; i++) {
        lengths[i] = 1 + i % 3, limits[i] = 1 + i % LIMIT;
        for (long t = 0; t < lengths[i]; t++) tokens[n++] = t + 1 < lengths[i] ? 4 + (i + t) % (VOCABULARY - 4) : EOS;
    }
    float penalties[LIMIT + 1], scores[SENTENCES];
    for (long i = 0; i <= LIMIT; i++) penalties[i] = 1 + i / 6.0f;
    struct sentences sources = {tokens, lengths, SENTENCES};
    struct search settings = {3, 1, 0, 0, limits, penalties, encodings[0], NULL};
    for (int round = 0; round < ROUNDS; round++) {
        struct results results = {work->lengths, scores, NULL};
        if (translate_plain(work->model, &sources, &settings, &results) != DONE) exit(2);
        long n = 0;
        for (long i = 0; i < SENTENCES; i++) n += work->lengths[i] > 0 ? work->lengths[i] : 0;
        memcpy(work->ids, results.ids, n * sizeof *results.ids);
        release(results.ids);
        struct forced forced = {work->log_p, NULL};
        if (force_plain(work->model, &sources, &settings, &sources, &forced) != DONE) exit(2);
    }
    return NULL;
}

int main(void) {
    for (long t = 0; t < LONGEST + STEPS; t++)
        for (long i = 0; i < D; i++) encodings[t][i] = (t * 5 + i * 13) % 17 / 17.0f;
    struct model model = {
        D, HEADS, 1, LAYERS, LAYERS, random_blocks(), random_blocks(), random_norm(), random_norm(),
        random_numbers(VOCABULARY * D, 0, 1), random_numbers(VOCABULARY * D, 0, 1), random_linear(D, VOCABULARY), 1e-5f,
    };
    static struct work works[THREADS + 1];
    pthread_t threads[THREADS];
    for (int i = 0; i <= THREADS; i++) works[i].model = &model;
    translate_and_force(&works[THREADS]);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, translate_and_force, &works[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (memcmp(&works[i], &works[THREADS], sizeof works[i])) return 1;
    }
    printf("%d threads found what one found\n", THREADS);
    return 0;
}
