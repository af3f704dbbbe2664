/* Greedy search, beam search and forced decoding, once for all variants of engine.c. The rules of the searches are
   those of decoding/search.py, which explains them; tests hold both equal.

   Sentences that are decided leave the batch at once: keys and values stay where they are, so that it costs nothing.

   Letters in shapes: B sentences, L of them live, K hypotheses of each, N results of each, V vocabulary. */

enum { NOT_A_TOKEN = -1, PAD = 0, BOS = 2, EOS = 3 }; /* as in config.py */

enum outcome { NO_MEMORY, DONE, STOPPED };

struct sentences {
    const int64_t *tokens;  /* of all sentences, one after another, each with EOS at its end */
    const int64_t *lengths; /* (n) */
    long n;
};

struct search {
    long beam, n_best;
    long first_tag, n_tags; /* token ids that are never generated, besides those below EOS */
    const int64_t *limits;  /* (B): how long each translation may become, at least 1 */
    /* (longest limit + 1): by which log P of each length is divided; null in greedy search that needs no scores */
    const float *penalties;
    /* (n, d) of the first positions: as many as the longest source has, and as many as a translation may get */
    const float *encodings;
    /* Asked before every eighth step, since Python may be busy; null for yes. Writes whether; where Python is
       interrupted, it writes nothing. */
    void (*may_go_on)(int *may);
};

struct results {
    long *lengths; /* (B, N): the tokens of each result, best first; -1 where there are fewer */
    float *scores; /* (B, N) */
    int64_t *ids;  /* of all results, one after another; to be freed by `release` */
};

struct forced {
    double *log_p;  /* (B): of each translation, in nats, without length penalty */
    float *weights; /* of each sentence (decoder layers, heads, target length, source length); null if nobody asks */
};

/* Memory that is freed together */

struct memory {
    void **blocks;
    size_t n, room;
};

/* Room for n things of a size, or null. */
static void *take(struct memory *memory, long n, size_t size) {
    if (n < 0 || (size_t)n > SIZE_MAX / 2 / size) return NULL;
    if (memory->n == memory->room) {
        size_t room = memory->room ? 2 * memory->room : 64;
        void **blocks = realloc(memory->blocks, room * sizeof *blocks);
        if (!blocks) return NULL;
        memory->blocks = blocks, memory->room = room;
    }
    void *block = malloc(n ? n * size : 1);
    if (block) memory->blocks[memory->n++] = block;
    return block;
}

static void free_memory(struct memory *memory) {
    while (memory->n) free(memory->blocks[--memory->n]);
    free(memory->blocks);
}

/* A model, asked step by step */

struct functions { /* of a variant */
    int (*encode)(const struct model *, const struct sentences *, const float *, const struct source *);
    int (*step)(const struct model *, const struct source *, const struct step *, long, const int64_t *, const float *,
                float *);
    void (*best)(const float *, const float *, long, long, long, long, float *, int64_t *);
    float (*log_sum)(const float *, long, float *);
};

/* Logits (n_rows, V) of the tokens that may follow the last ones, by a program of the caller; 0 to stop. */
typedef int scripted_step(long n_rows, const int64_t *tokens, const int64_t *parents, float *logits);

struct searching {
    const struct search *search;
    const struct functions *functions;
    long vocabulary;
    int with_weights; /* whether the steps store them */

    /* Either a model or a script gives the logits. */
    const struct model *model;
    const struct source *source;
    scripted_step *script;

    /* The steps so far: the last tokens of the hypotheses, and the rows of the step before from which they continue */
    struct step *steps;
    int64_t **tokens;
    long n_steps, room;

    struct memory memory;
    float *logits;
    long logits_room;
};

/* Makes room for the next step, of n_rows hypotheses, and for its logits. The caller fills in its tokens and
   parents. */
static int add_step(struct searching *s, long n_rows) {
    if (s->n_steps == s->room) {
        long room = s->room ? 2 * s->room : 64;
        struct step *steps = take(&s->memory, room, sizeof *steps);
        int64_t **tokens = take(&s->memory, room, sizeof *tokens);
        if (!steps || !tokens) return 0;
        if (s->n_steps) {
            memcpy(steps, s->steps, s->n_steps * sizeof *steps);
            memcpy(tokens, s->tokens, s->n_steps * sizeof *tokens);
        }
        s->steps = steps, s->tokens = tokens, s->room = room;
    }
    if (!s->logits || n_rows * s->vocabulary > s->logits_room) {
        s->logits_room = n_rows * s->vocabulary;
        s->logits = take(&s->memory, s->logits_room, sizeof *s->logits);
    }
    long n_numbers = s->model ? s->model->n_decoder_layers * n_rows * 2 * s->model->d : 0;
    struct step step = {.keys_values = take(&s->memory, n_numbers, sizeof(bf16)), .n_rows = n_rows};
    if (s->n_steps) step.parents = take(&s->memory, n_rows, sizeof *step.parents); /* at first, a row is a sentence */
    int64_t *tokens = take(&s->memory, n_rows, sizeof *tokens);
    if (s->with_weights) {
        long n_weights = s->model->n_decoder_layers * s->model->n_heads * s->source->longest;
        step.weights = take(&s->memory, n_rows * n_weights, sizeof *step.weights);
        if (!step.weights) return 0;
    }
    if (!s->logits || !step.keys_values || (s->n_steps && !step.parents) || !tokens) return 0;
    s->steps[s->n_steps] = step, s->tokens[s->n_steps++] = tokens;
    return 1;
}

/* Computes the logits of the last step, without those that are never generated. */
static enum outcome compute_logits(struct searching *s) {
    const struct search *search = s->search;
    if (search->may_go_on && s->n_steps % 8 == 1) {
        int may = 0;
        search->may_go_on(&may);
        if (!may) return STOPPED;
    }
    struct step *now = s->steps + s->n_steps - 1;
    const int64_t *tokens = s->tokens[s->n_steps - 1];
    if (s->script) {
        if (!s->script(now->n_rows, tokens, now->parents, s->logits)) return STOPPED;
    } else {
        const float *encoding = search->encodings + (s->n_steps - 1) * s->model->d;
        if (!s->functions->step(s->model, s->source, s->steps, s->n_steps, tokens, encoding, s->logits))
            return NO_MEMORY;
    }
    for (long r = 0; r < now->n_rows; r++) {
        float *logits = s->logits + r * s->vocabulary;
        for (long v = 0; v < EOS; v++) logits[v] = float_of_bits(NONE);
        for (long v = 0; v < search->n_tags; v++) logits[search->first_tag + v] = float_of_bits(NONE);
    }
    return DONE;
}

/* Writes the tokens that lead to a hypothesis, a row of the step of this length, and to one more token; EOS and PAD are
   left out. Returns how many. */
static long write_ids(const struct searching *s, long length, int64_t row, int64_t last, int64_t *ids) {
    long n = 0;
    if (last != EOS && last != PAD) ids[n++] = last;
    for (long t = length - 1; t > 0; t--) {
        if (s->tokens[t][row] != PAD) ids[n++] = s->tokens[t][row];
        row = s->steps[t].parents[row];
    }
    for (long i = 0; i < n / 2; i++) {
        int64_t id = ids[i];
        ids[i] = ids[n - 1 - i], ids[n - 1 - i] = id;
    }
    return n;
}

/* Of a hypothesis: its last token, the row of the step that it continues, and its length with that token. */
struct end {
    float score;
    long length;
    int64_t row, token;
};

/* Writes the ends (B, N), which are there where length is not 0, as results. */
static enum outcome write_results(const struct searching *s, const struct end *ends, long n_ends,
                                  struct results *results) {
    long n_ids = 0;
    for (long i = 0; i < n_ends; i++) n_ids += ends[i].length;
    int64_t *ids = results->ids = malloc((n_ids ? n_ids : 1) * sizeof *ids);
    if (!ids) return NO_MEMORY;
    for (long i = 0; i < n_ends; i++) {
        results->scores[i] = ends[i].score;
        results->lengths[i] = ends[i].length ? write_ids(s, ends[i].length, ends[i].row, ends[i].token, ids) : -1;
        if (ends[i].length) ids += results->lengths[i];
    }
    return DONE;
}

static enum outcome greedy_search(struct searching *s, long B, struct results *results) {
    struct end *ends = take(&s->memory, B, sizeof *ends);
    long *live = take(&s->memory, B, sizeof *live);
    float *values = take(&s->memory, B, sizeof *values);
    float *scores = take(&s->memory, B, sizeof *scores); /* log P, if there are penalties */
    int64_t *best = take(&s->memory, B, sizeof *best);
    const float *penalties = s->search->penalties;
    if (!ends || !live || !values || !scores || !best || !add_step(s, B)) return NO_MEMORY;
    for (long b = 0; b < B; b++) live[b] = b, s->tokens[0][b] = BOS, ends[b] = (struct end){0}, scores[b] = 0;

    for (long L = B, length = 1; L; length++) {
        enum outcome outcome = compute_logits(s);
        if (outcome != DONE) return outcome;
        s->functions->best(s->logits, NULL, L, 1, s->vocabulary, 1, values, best);
        for (long l = 0; penalties && l < L; l++) { /* the best logit is the largest */
            float largest;
            scores[live[l]] -= s->functions->log_sum(s->logits + l * s->vocabulary, s->vocabulary, &largest);
        }

        /* A sentence ends with EOS or at its limit; the others continue. One whose logits have overflowed has no result. */
        long n_continuing = 0;
        for (long l = 0; l < L; l++) {
            if (!is_finite(values[l]))
                best[l] = NOT_A_TOKEN;
            else if (best[l] == EOS || s->search->limits[live[l]] <= length)
                ends[live[l]] = (struct end){penalties ? scores[live[l]] / penalties[length] : 0, length, l, best[l]};
            else
                n_continuing++;
        }
        if (n_continuing && !add_step(s, n_continuing)) return NO_MEMORY;
        for (long l = 0, row = 0; n_continuing && l < L; l++) {
            if (best[l] == NOT_A_TOKEN || ends[live[l]].length) continue;
            s->tokens[length][row] = best[l];
            ((int64_t *)s->steps[length].parents)[row] = l;
            live[row++] = live[l];
        }
        L = n_continuing;
    }
    return write_results(s, ends, B, results);
}

/* Beam search */

struct undecided { /* a sentence */
    long number, n_ended;
    struct end *ends; /* (N) its results, best first */
};

/* Enters a result behind those that are as good. */
static void enter(struct end end, struct end *ends, long n) {
    if (end.score <= ends[n - 1].score) return;
    long i = n - 1;
    for (; i > 0 && ends[i - 1].score < end.score; i--) ends[i] = ends[i - 1];
    ends[i] = end;
}

/* Whether a sentence may still find a hypothesis that beats the n best it has. best_log_p is that of its best
   survivor. */
static int is_undecided(const struct search *search, const struct undecided *sentence, long length, float best_log_p) {
    float score_to_beat = sentence->ends[search->n_best - 1].score;
    float best_now = best_log_p / search->penalties[length];
    float best_ever = best_log_p / search->penalties[search->limits[sentence->number]];
    return best_ever > score_to_beat && !(sentence->n_ended >= search->beam && best_now <= score_to_beat);
}

static enum outcome beam_search(struct searching *s, long B, struct results *results) {
    const struct search *search = s->search;
    long beam = search->beam, V = s->vocabulary, N = search->n_best, L = B, K = 1;
    struct end *ends = take(&s->memory, B * N, sizeof *ends);
    struct undecided *sentences = take(&s->memory, B, sizeof *sentences);
    float *scores = take(&s->memory, B * beam, sizeof *scores);       /* (L, K) log P of the hypotheses */
    float *values = take(&s->memory, B * 2 * beam, sizeof *values);   /* (L, 2K) log P of candidates, best first */
    int64_t *places = take(&s->memory, B * 2 * beam, sizeof *places); /* (L, 2K) where they are in K · V */
    int64_t *parents = take(&s->memory, B * beam, sizeof *parents);   /* (L, K) of those that continue */
    int64_t *tokens = take(&s->memory, B * beam, sizeof *tokens);
    if (!ends || !sentences || !scores || !values || !places || !parents || !tokens || !add_step(s, B))
        return NO_MEMORY;
    for (long i = 0; i < B * N; i++) ends[i] = (struct end){.score = LOWEST};
    for (long b = 0; b < B; b++) {
        sentences[b] = (struct undecided){.number = b, .ends = ends + b * N};
        s->tokens[0][b] = BOS, scores[b] = 0;
    }

    for (long length = 1; L; length++) {
        enum outcome outcome = compute_logits(s);
        if (outcome != DONE) return outcome;
        long n = 2 * beam < K * V ? 2 * beam : K * V; /* up to K of them may end, and K must be left */
        s->functions->best(s->logits, scores, L, K, V, n, values, places);

        long next_K = beam < n ? beam : n, n_undecided = 0;
        for (long l = 0; l < L; l++) {
            struct undecided sentence = sentences[l];
            const float *value = values + l * n;
            const int64_t *place = places + l * n;
            int is_at_limit = search->limits[sentence.number] == length;

            /* Finish what ends among the K best candidates. */
            for (long i = 0; i < next_K; i++) {
                float score = value[i] / search->penalties[length];
                if ((place[i] % V != EOS && !is_at_limit) || !is_finite(score)) continue;
                enter((struct end){score, length, l * K + place[i] / V, place[i] % V}, sentence.ends, N);
                sentence.n_ended++;
            }

            /* Continue with the K best that do not end. Rows of sentences that stay take the place of those before. */
            long first = n_undecided * next_K, k = 0;
            for (long i = 0; i < n && k < next_K; i++) {
                if (place[i] % V == EOS) continue;
                scores[first + k] = value[i];
                parents[first + k] = l * K + place[i] / V;
                tokens[first + k++] = place[i] % V;
            }
            for (; k < next_K; k++) {
                scores[first + k] = float_of_bits(NONE);
                parents[first + k] = l * K;
                tokens[first + k] = EOS;
            }
            if (!is_at_limit && is_undecided(search, &sentence, length, scores[first]))
                sentences[n_undecided++] = sentence;
        }

        L = n_undecided, K = next_K;
        if (!L) break;
        if (!add_step(s, L * K)) return NO_MEMORY;
        memcpy(s->tokens[length], tokens, L * K * sizeof *tokens);
        memcpy((int64_t *)s->steps[length].parents, parents, L * K * sizeof *parents);
    }
    return write_results(s, ends, B * N, results);
}

static enum outcome run_search(struct searching *s, long B, struct results *results) {
    enum outcome outcome = s->search->beam == 1 ? greedy_search(s, B, results) : beam_search(s, B, results);
    free_memory(&s->memory);
    return outcome;
}

/* Forced decoding: each token of a translation that is given, after those before it. */

/* Writes what row `row` of the last step attends to, token `t` of `n_targets`, to the weights of its sentence. */
static void write_weights(const struct searching *s, long row, long t, long n_targets, long n_source, float *weights) {
    const struct step *now = s->steps + s->n_steps - 1;
    long H = s->model->n_heads, longest = s->source->longest;
    for (long l = 0; l < s->model->n_decoder_layers; l++)
        for (long h = 0; h < H; h++)
            memcpy(weights + ((l * H + h) * n_targets + t) * n_source,
                   now->weights + ((l * now->n_rows + row) * H + h) * longest, n_source * sizeof *weights);
}

static enum outcome run_forced(struct searching *s, const struct sentences *sources, const struct sentences *targets,
                               struct forced *forced) {
    long B = targets->n, n_weights = 0;
    long *live = take(&s->memory, B, sizeof *live);
    long *starts = take(&s->memory, B, sizeof *starts); /* of each translation among the tokens */
    long *weights_starts = take(&s->memory, B, sizeof *weights_starts);
    if (!live || !starts || !weights_starts || !add_step(s, B)) return NO_MEMORY;
    for (long b = 0, n_tokens = 0; b < B; n_tokens += targets->lengths[b++]) {
        live[b] = b, starts[b] = n_tokens, weights_starts[b] = n_weights;
        n_weights += s->model->n_decoder_layers * s->model->n_heads * targets->lengths[b] * sources->lengths[b];
        s->tokens[0][b] = BOS, forced->log_p[b] = 0;
    }

    for (long L = B, t = 0; L; t++) {
        enum outcome outcome = compute_logits(s);
        if (outcome != DONE) return outcome;

        long n_continuing = 0;
        for (long l = 0; l < L; l++) {
            long b = live[l], V = s->vocabulary;
            const float *logits = s->logits + l * V;
            float logit = logits[targets->tokens[starts[b] + t]];
            float largest, log_sum = s->functions->log_sum(logits, V, &largest);
            if (!is_finite(logit) || forced->log_p[b] < LOWEST)
                forced->log_p[b] = float_of_bits(NONE); /* a token that is never generated */
            else
                forced->log_p[b] += logit - largest - log_sum;
            if (forced->weights)
                write_weights(s, l, t, targets->lengths[b], sources->lengths[b], forced->weights + weights_starts[b]);
            n_continuing += t + 1 < targets->lengths[b];
        }

        if (n_continuing && !add_step(s, n_continuing)) return NO_MEMORY;
        for (long l = 0, row = 0; n_continuing && l < L; l++) {
            long b = live[l];
            if (t + 1 == targets->lengths[b]) continue;
            s->tokens[t + 1][row] = targets->tokens[starts[b] + t];
            ((int64_t *)s->steps[t + 1].parents)[row] = l;
            live[row++] = b;
        }
        L = n_continuing;
    }
    return DONE;
}

/* Prepares a search in the model: encodes the sources. */
static enum outcome begin(struct searching *s, struct source *source, const struct sentences *sources) {
    const struct model *m = s->model;
    int64_t *starts = take(&s->memory, sources->n + 1, sizeof *starts);
    if (!starts) return NO_MEMORY;
    for (long b = 0; b < sources->n; b++) {
        starts[b] = source->n_tokens;
        source->n_tokens += sources->lengths[b];
        source->longest = sources->lengths[b] > source->longest ? sources->lengths[b] : source->longest;
    }
    starts[sources->n] = source->n_tokens;
    source->starts = starts;
    source->keys_values = take(&s->memory, m->n_decoder_layers * source->n_tokens * 2 * m->d, sizeof(bf16));
    s->source = source;
    if (!source->keys_values) return NO_MEMORY;
    return s->functions->encode(m, sources, s->search->encodings, source) ? DONE : NO_MEMORY;
}

static int translate(const struct model *m, const struct functions *functions, const struct sentences *sources,
                     const struct search *search, struct results *results) {
    struct searching s = {.search = search, .functions = functions, .vocabulary = m->projection.n_out, .model = m};
    struct source source = {0};
    if (begin(&s, &source, sources) == DONE) return run_search(&s, sources->n, results);
    free_memory(&s.memory);
    return NO_MEMORY;
}

static int force(const struct model *m, const struct functions *functions, const struct sentences *sources,
                 const struct search *search, const struct sentences *targets, struct forced *forced) {
    struct searching s = {.search = search, .functions = functions, .vocabulary = m->projection.n_out, .model = m};
    s.with_weights = !!forced->weights;
    struct source source = {0};
    enum outcome outcome = begin(&s, &source, sources);
    if (outcome == DONE) outcome = run_forced(&s, sources, targets, forced);
    free_memory(&s.memory);
    return outcome;
}

/* A search by the caller, which asks for the logits of one step after another */

struct stepping {
    struct searching searching;
    struct source source;
};

/* Encodes the sources; null without memory. The settings must live as long as what is returned. */
static struct stepping *begin_stepping(const struct model *m, const struct functions *functions,
                                       const struct sentences *sources, const struct search *search) {
    struct stepping *stepping = calloc(1, sizeof *stepping);
    if (!stepping) return NULL;
    struct searching *s = &stepping->searching;
    *s = (struct searching){.search = search, .functions = functions, .vocabulary = m->projection.n_out, .model = m};
    if (begin(s, &stepping->source, sources) == DONE) return stepping;
    free_memory(&s->memory);
    free(stepping);
    return NULL;
}

/* Writes logits (n_rows, V) of the tokens that may follow these, each of which continues a row of the step before; at
   first, there is one for each sentence, and `parents` is not read. Returns an outcome. */
int next_logits(struct stepping *stepping, long n_rows, const int64_t *tokens, const int64_t *parents, float *logits) {
    struct searching *s = &stepping->searching;
    if (!add_step(s, n_rows)) return NO_MEMORY;
    memcpy(s->tokens[s->n_steps - 1], tokens, n_rows * sizeof *tokens);
    struct step *now = s->steps + s->n_steps - 1;
    if (now->parents) memcpy((int64_t *)now->parents, parents, n_rows * sizeof *parents);
    enum outcome outcome = compute_logits(s);
    if (outcome == DONE) memcpy(logits, s->logits, n_rows * s->vocabulary * sizeof *logits);
    return outcome;
}

void end_stepping(struct stepping *stepping) {
    free_memory(&stepping->searching.memory);
    free(stepping);
}

void release(int64_t *ids) { free(ids); }
