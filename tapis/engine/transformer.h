/* The Transformer in 8 bits, once for each variant of engine.c, which says what a variant must define.

   Vectors are rows of d numbers. Sentences have no padding: the rows of a batch lie one under another. Everything below
   but `multiply_tile` is plain loops, which compilers vectorize for each variant.

   `translate`, `force` and `begin_stepping`, at the end, are what Python calls; tests also call `search`, `encode`,
   `step` and `best_continuations`. */

/* Normalization */

/* alpha (x − mean) / √(variance + epsilon) + bias, row by row. out may be x. */
TARGET static void FUNCTION(normalize)(const struct model *m, struct norm norm, const float *x, float *out, long n) {
    long d = m->d;
    for (long r = 0; r < n; r++, x += d, out += d) {
        float sum = 0, squares = 0;
        for (long i = 0; i < d; i++) sum += x[i];
        float mean = sum / d;
        for (long i = 0; i < d; i++) squares += (x[i] - mean) * (x[i] - mean);
        float factor = 1 / sqrtf(squares / d + m->epsilon);
        for (long i = 0; i < d; i++) out[i] = norm.alpha[i] * (x[i] - mean) * factor + norm.bias[i];
    }
}

/* Linear layers in 8 bits */

/* Rounds n rows of d numbers to 8 bits. A row's scale is its largest magnitude over 127, so that a token is rounded in
   the same way whatever else is in its batch. Behind a row there are zeros up to a multiple of DEPTH. */
TARGET static void FUNCTION(quantize)(const float *x, long n, long d, struct quantized *out) {
    long depth = round_up(d, DEPTH);
    for (long r = 0; r < n; r++, x += d) {
        float largest = 1e-30f; /* so that a row of zeros has a scale */
        for (long i = 0; i < d; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        out->scale[r] = largest / 127;

        float inverse_scale = 127 / largest;
        uint8_t *row = out->rows + r * depth;
        for (long i = 0; i < d; i++) row[i] = (int32_t)rintf(x[i] * inverse_scale) + OFFSET;
        for (long i = d; i < depth; i++) row[i] = OFFSET;
    }
}

/* The products of `rows` rows with a panel of weights, in integers. `rows` must be a constant, so that the loops unroll
   and the totals stay in registers. */
INLINE void FUNCTION(multiply_tile)(const int rows, const uint8_t *x, long depth, const int8_t *panel,
                                    const int32_t *column_sums, int32_t (*product)[PANEL]) {
    enum { VECTORS = PANEL / (sizeof(INTEGERS) / sizeof(int32_t)) };
    INTEGERS totals[TILE_ROWS][VECTORS];

    /* The rows hold x + OFFSET: Σ x w = Σ (x + OFFSET) w − OFFSET Σ w. The last term is where the totals start. */
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            memcpy(&totals[r][v], column_sums + v * PANEL / VECTORS, sizeof(INTEGERS));
            totals[r][v] *= -OFFSET;
        }

    /* Each step takes STEP numbers of a row, the same for all columns, and as many of each of the panel's columns. */
    for (long k = 0; k < depth; k += STEP, panel += STEP * PANEL)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++)
                totals[r][v] =
                    FUNCTION(add_products)(totals[r][v], x + r * depth + k, panel + v * sizeof(INTEGERS));

    /* Through memory: GCC 12 keeps no total in a register if the scaling uses it directly. */
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) memcpy(product[r], totals[r], sizeof totals[r]);
}

/* x Wᵀ + bias for n rows, (n, w->n_out), stored in y, added to y, or stored after ReLU, as `epilogue` says. */
TARGET static void FUNCTION(linear)(const struct linear *w, const struct quantized *x, long n, float *y,
                                    enum epilogue epilogue) {
    long depth = round_up(w->n_in, DEPTH);
    int32_t product[TILE_ROWS][PANEL];

    /* Panel by panel, so that each weight is read from memory once; a panel stays in L1 for all rows. */
    for (long c = 0; c < w->n_out; c += PANEL) {
        const int8_t *panel = w->weight + c * depth;
        const int32_t *sums = w->column_sums + c;
        long columns = w->n_out - c < PANEL ? w->n_out - c : PANEL;

        for (long r = 0, rows; r < n; r += rows) {
            const uint8_t *x_rows = x->rows + r * depth;
            rows = n - r < TILE_ROWS ? n - r : TILE_ROWS;
            switch (rows) {
#define TILE_OF(N)                                                                                                     \
    case N:                                                                                                            \
        FUNCTION(multiply_tile)(N <= TILE_ROWS ? N : 1, x_rows, depth, panel, sums, product);                          \
        break;
                TILE_OF(1) TILE_OF(2) TILE_OF(3) TILE_OF(4) TILE_OF(5) TILE_OF(6)
                TILE_OF(7) TILE_OF(8) TILE_OF(9) TILE_OF(10) TILE_OF(11) TILE_OF(12)
#undef TILE_OF
            }

            for (long i = 0; i < rows; i++) {
                float *place = y + (r + i) * w->n_out + c, spare[PANEL], *out = place, scale = x->scale[r + i];
                if (columns < PANEL) out = memcpy(spare, place, columns * sizeof(float));
                for (long j = 0; j < PANEL; j++) {
                    float value = product[i][j] * scale * w->scale[c + j] + w->bias[c + j];
                    if (epilogue == ADD_TO_Y)
                        out[j] += value;
                    else if (epilogue == RELU)
                        out[j] = value > 0 ? value : 0;
                    else
                        out[j] = value;
                }
                if (columns < PANEL) memcpy(place, spare, columns * sizeof(float));
            }
        }
    }
}

/* Attention */

/* exp(x) for x ≤ 0, to about 5 units in the last place with FMA. With n = round(x / ln 2) and r = x − n ln 2, it is 2ⁿ
   times a polynomial for exp(r) on |r| ≤ ln 2 / 2 (Cephes, expf). Below −87, where 2ⁿ would leave the range of floats,
   it is exp(−87). */
INLINE float FUNCTION(exponential)(float x) {
    x = x > -87 ? x : -87;
    int32_t n = (int32_t)(x * 1.44269504f - 0.5f);
    float r = x - n * 0.693147181f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    return p * float_of_bits((n + 127) << 23);
}

/* softmax(q Kᵀ / √size) V of one query for each head. positions are the keys and values that it may attend to: each lies
   elsewhere in memory, and is read once for all heads. scores has room for (heads, n) numbers. Stores the weights of
   each head, (heads, n) with rows of `stride` numbers, unless weights is null. */
TARGET static void FUNCTION(attend)(const struct model *m, const float *query, const bf16 *const *positions, long n,
                                    float *scores, float *out, float *weights, long stride) {
    long d = m->d, n_heads = m->n_heads, size = d / n_heads;
    float scale = 1 / sqrtf(size);
    for (long s = 0; s < n; s++)
        for (long h = 0; h < n_heads; h++) {
            const float *q = query + h * size;
            const bf16 *key = positions[s] + h * size;
            float product = 0;
            for (long i = 0; i < size; i++) product += q[i] * to_float(key[i]);
            scores[h * n + s] = product * scale;
        }

    /* From scores to weights */
    for (long h = 0; h < n_heads; h++) {
        float *of_head = scores + h * n, largest = LOWEST, sum = 0;
        for (long s = 0; s < n; s++) largest = of_head[s] > largest ? of_head[s] : largest;
        for (long s = 0; s < n; s++) {
            of_head[s] = FUNCTION(exponential)(of_head[s] - largest);
            sum += of_head[s];
        }
        for (long s = 0; s < n; s++) of_head[s] /= sum;
        if (weights) memcpy(weights + h * stride, of_head, n * sizeof(float));
    }

    /* The weighted sum of the values, four at a time: each pass over `out` costs as much as two products. */
    for (long i = 0; i < d; i++) out[i] = 0;
    for (long s = 0; s < n; s += 4) {
        const bf16 *values[4];
        for (int j = 0; j < 4; j++) values[j] = positions[s + j < n ? s + j : s] + d;
        for (long h = 0; h < n_heads; h++) {
            const bf16 *value[4];
            float *y = out + h * size, weight[4];
            for (int j = 0; j < 4; j++) {
                value[j] = values[j] + h * size;
                weight[j] = s + j < n ? scores[h * n + s + j] : 0;
            }
            for (long i = 0; i < size; i++)
                y[i] += weight[0] * to_float(value[0][i]) + weight[1] * to_float(value[1][i]) +
                        weight[2] * to_float(value[2][i]) + weight[3] * to_float(value[3][i]);
        }
    }
}

/* Stores n rows of keys and values, which begin every `stride` numbers, as bf16. */
TARGET static void FUNCTION(store)(const struct model *m, const float *x, long stride, long n, bf16 *keys_values) {
    for (long r = 0; r < n; r++, x += stride, keys_values += 2 * m->d)
        for (long i = 0; i < 2 * m->d; i++) keys_values[i] = to_bf16(x[i]);
}

/* Blocks */

/* Quantizes a sublayer's input: x, normalized first if the model is pre-norm. */
TARGET static void FUNCTION(into_sublayer)(const struct model *m, struct norm norm, struct scratch *s, long n) {
    if (m->is_pre_norm) FUNCTION(normalize)(m, norm, s->x, s->narrow, n);
    FUNCTION(quantize)(m->is_pre_norm ? s->narrow : s->x, n, m->d, &s->quantized);
}

/* Adds the result of a sublayer's last linear layer to x. Normalizes the sum if the model is post-norm. */
TARGET static void FUNCTION(out_of_sublayer)(const struct model *m, struct norm norm, struct scratch *s, long n,
                                             const struct linear *last) {
    FUNCTION(linear)(last, &s->quantized, n, s->x, ADD_TO_Y);
    if (!m->is_pre_norm) FUNCTION(normalize)(m, norm, s->x, s->x, n);
}

TARGET static void FUNCTION(feed_forward)(const struct model *m, const struct block *block, struct scratch *s,
                                          long n) {
    FUNCTION(into_sublayer)(m, block->feed_forward_norm, s, n);
    FUNCTION(linear)(&block->linear_1, &s->quantized, n, s->wide, RELU);
    FUNCTION(quantize)(s->wide, n, block->linear_1.n_out, &s->quantized);
    FUNCTION(out_of_sublayer)(m, block->feed_forward_norm, s, n, &block->linear_2);
}

/* One token's embedding times √d, plus the encoding of its position. */
TARGET static void FUNCTION(embed)(const struct model *m, const float *embedding, int64_t token, const float *position,
                                   float *x) {
    float root = sqrtf(m->d);
    for (long i = 0; i < m->d; i++) x[i] = embedding[token * m->d + i] * root + position[i];
}

/* Encodes whole sentences of n tokens in all, and stores what decoder layers attend to: keys and values (n, 2, d) of
   each layer, layers `layer_stride` numbers apart. */
TARGET static void FUNCTION(encode_group)(const struct model *m, const int64_t *tokens, const int64_t *lengths,
                                          long n_sentences, const float *encodings, bf16 *keys_values,
                                          long layer_stride, struct scratch *s) {
    long n = 0, d = m->d;
    for (long i = 0; i < n_sentences; i++)
        for (long t = 0; t < lengths[i]; t++, n++)
            FUNCTION(embed)(m, m->source_embedding, tokens[n], encodings + t * d, s->x + n * d);

    for (long l = 0; l < m->n_encoder_layers; l++) {
        const struct block *block = m->encoder + l;
        FUNCTION(into_sublayer)(m, block->self_norm, s, n);
        FUNCTION(linear)(&block->self_qkv, &s->quantized, n, s->wide, STORE);
        FUNCTION(store)(m, s->wide + d, 3 * d, n, s->keys_values);
        for (long i = 0, first = 0; i < n_sentences; first += lengths[i++]) {
            for (long t = 0; t < lengths[i]; t++) s->positions[t] = s->keys_values + (first + t) * 2 * d;
            for (long t = first; t < first + lengths[i]; t++)
                FUNCTION(attend)(m, s->wide + t * 3 * d, s->positions, lengths[i], s->scores, s->narrow + t * d, NULL,
                                 0);
        }
        FUNCTION(quantize)(s->narrow, n, d, &s->quantized);
        FUNCTION(out_of_sublayer)(m, block->self_norm, s, n, &block->self_o);
        FUNCTION(feed_forward)(m, block, s, n);
    }

    FUNCTION(into_sublayer)(m, m->encoder_norm, s, n);
    for (long l = 0; l < m->n_decoder_layers; l++, keys_values += layer_stride) {
        FUNCTION(linear)(&m->decoder[l].source_kv, &s->quantized, n, s->wide, STORE);
        FUNCTION(store)(m, s->wide, 2 * d, n, keys_values);
    }
}

/* Logits (n, V) of the hypotheses in rows first … first + n − 1 of the last step of `history`. */
TARGET static void FUNCTION(step_group)(const struct model *m, const struct source *source,
                                        const struct step *history, long n_steps, const int64_t *tokens, long first,
                                        long n, const float *encoding, float *logits, struct scratch *s) {
    long d = m->d;
    for (long r = 0; r < n; r++)
        FUNCTION(embed)(m, m->target_embedding, tokens[first + r], encoding, s->x + r * d);

    for (long l = 0; l < m->n_decoder_layers; l++) {
        const struct block *block = m->decoder + l;
        const struct step *now = history + n_steps - 1;

        /* Self-attention: to the hypothesis's own past, from parent to parent */
        FUNCTION(into_sublayer)(m, block->self_norm, s, n);
        FUNCTION(linear)(&block->self_qkv, &s->quantized, n, s->wide, STORE);
        FUNCTION(store)(m, s->wide + d, 3 * d, n, now->keys_values + (l * now->n_rows + first) * 2 * d);
        for (long r = 0; r < n; r++) {
            long row = first + r;
            for (long t = n_steps - 1; t >= 0; t--) {
                s->positions[t] = history[t].keys_values + (l * history[t].n_rows + row) * 2 * d;
                if (history[t].parents) row = history[t].parents[row];
            }
            s->sentence[r] = row; /* at the first step, a row is a sentence */
            FUNCTION(attend)(m, s->wide + r * 3 * d, s->positions, n_steps, s->scores, s->narrow + r * d, NULL, 0);
        }
        FUNCTION(quantize)(s->narrow, n, d, &s->quantized);
        FUNCTION(out_of_sublayer)(m, block->self_norm, s, n, &block->self_o);

        /* Attention to the source */
        FUNCTION(into_sublayer)(m, block->source_norm, s, n);
        FUNCTION(linear)(&block->source_q, &s->quantized, n, s->wide, STORE);
        for (long r = 0; r < n; r++) {
            long start = source->starts[s->sentence[r]], length = source->starts[s->sentence[r] + 1] - start;
            const bf16 *keys_values = source->keys_values + (l * source->n_tokens + start) * 2 * d;
            for (long t = 0; t < length; t++) s->positions[t] = keys_values + t * 2 * d;
            float *weights = now->weights;
            if (weights) weights += (l * now->n_rows + first + r) * m->n_heads * source->longest;
            FUNCTION(attend)(m, s->wide + r * d, s->positions, length, s->scores, s->narrow + r * d, weights,
                             source->longest);
        }
        FUNCTION(quantize)(s->narrow, n, d, &s->quantized);
        FUNCTION(out_of_sublayer)(m, block->source_norm, s, n, &block->source_o);

        FUNCTION(feed_forward)(m, block, s, n);
    }

    FUNCTION(into_sublayer)(m, m->decoder_norm, s, n);
    FUNCTION(linear)(&m->projection, &s->quantized, n, logits, STORE);
}

/* What a search calls */

/* tokens (source->n_tokens), sentence after sentence, and encodings (longest length, d) → source->keys_values.
   Returns 0 if there is not enough memory. */
TARGET int FUNCTION(encode)(const struct model *m, const struct sentences *sentences, const float *encodings,
                             const struct source *source) {
    const int64_t *tokens = sentences->tokens, *lengths = sentences->lengths;
    struct scratch s = new_scratch(m, ROWS_AT_ONCE + source->longest, source->longest);

    /* Groups of whole sentences */
    int is_done = has_memory(&s);
    for (long i = 0, token = 0; is_done && i < sentences->n;) {
        long n = 0, first = i;
        while (i < sentences->n && n < ROWS_AT_ONCE) n += lengths[i++];
        bf16 *keys_values = source->keys_values + token * 2 * m->d;
        long layer_stride = source->n_tokens * 2 * m->d;
        FUNCTION(encode_group)(m, tokens + token, lengths + first, i - first, encodings, keys_values, layer_stride, &s);
        token += n;
    }
    free_scratch(&s);
    return is_done;
}

/* The next token of each hypothesis: tokens (N), the last ones, at the position that `encoding` (d) encodes → logits
   (N, V), where N is n_rows of the last of n_steps of `history`. Stores the keys and values of this step there, and
   its weights if they are asked for. Returns 0 if there is not enough memory. */
TARGET int FUNCTION(step)(const struct model *m, const struct source *source, const struct step *history,
                           long n_steps, const int64_t *tokens, const float *encoding, float *logits) {
    long n_rows = history[n_steps - 1].n_rows;
    long most = n_rows < ROWS_AT_ONCE ? n_rows : ROWS_AT_ONCE;
    struct scratch s = new_scratch(m, most, n_steps > source->longest ? n_steps : source->longest);
    int is_done = has_memory(&s);
    for (long first = 0; is_done && first < n_rows; first += most) {
        long n = n_rows - first < most ? n_rows - first : most;
        float *group_logits = logits + first * m->projection.n_out;
        FUNCTION(step_group)(m, source, history, n_steps, tokens, first, n, encoding, group_logits, &s);
    }
    free_scratch(&s);
    return is_done;
}

/* Of V logits the largest, and log Σ exp(logit − largest): logit − largest − log_sum is log P of a token. */
TARGET static float FUNCTION(log_sum)(const float *logits, long V, float *largest) {
    float sum = 0;
    *largest = LOWEST;
    for (long v = 0; v < V; v++) *largest = logits[v] > *largest ? logits[v] : *largest;
    for (long v = 0; v < V; v++) sum += FUNCTION(exponential)(logits[v] - *largest);
    return logf(sum);
}

/* The n best continuations of each sentence, best first: logits (L, K, V) → values (L, n), and places (L, n) in K · V.
   With scores (L, K), the log P of the hypotheses, values are log P of hypothesis and token; without, logits. */
TARGET void FUNCTION(best_continuations)(const float *logits, const float *scores, long L, long K, long V, long n,
                                         float *values, int64_t *places) {
    for (long l = 0; l < L; l++, values += n, places += n) {
        long n_found = 0;
        for (long i = 0; i < n; i++) values[i] = LOWEST, places[i] = 0;

        for (long k = 0; k < K; k++, logits += V) {
            float start = 0;
            if (scores) {
                float largest, log_sum = FUNCTION(log_sum)(logits, V, &largest);
                start = scores[l * K + k] - largest - log_sum;
            }

            /* A block of tokens of which none is good enough is skipped. */
            for (long block = 0; block < V; block += 64) {
                long end = block + 64 < V ? block + 64 : V;
                float largest = LOWEST;
                for (long v = block; v < end; v++) largest = logits[v] > largest ? logits[v] : largest;
                if (start + largest <= values[n - 1]) continue;

                for (long v = block; v < end; v++) {
                    float value = start + logits[v];
                    if (value <= values[n - 1]) continue;
                    long i = n_found < n ? n_found++ : n - 1;
                    for (; i > 0 && values[i - 1] < value; i--) values[i] = values[i - 1], places[i] = places[i - 1];
                    values[i] = value, places[i] = k * V + v;
                }
            }
        }
        for (long i = n_found; i < n; i++) values[i] = float_of_bits(NONE);
    }
}

/* What Python calls. Those that translate return an outcome. */

int FUNCTION(runs)(void) { return RUNS; }

static const struct functions FUNCTION(functions) = {
    FUNCTION(encode),
    FUNCTION(step),
    FUNCTION(best_continuations),
    FUNCTION(log_sum),
};

/* Translates `sources`. */
int FUNCTION(translate)(const struct model *m, const struct sentences *sources, const struct search *search,
                        struct results *results) {
    return translate(m, &FUNCTION(functions), sources, search, results);
}

/* Computes log P of given translations, and what they attend to. */
int FUNCTION(force)(const struct model *m, const struct sentences *sources, const struct search *search,
                    const struct sentences *targets, struct forced *forced) {
    return force(m, &FUNCTION(functions), sources, search, targets, forced);
}

/* Begins a search by the caller. Returns what `next_logits` takes and `end_stepping` frees; null without memory. */
struct stepping *FUNCTION(begin_stepping)(const struct model *m, const struct sentences *sources,
                                          const struct search *search) {
    return begin_stepping(m, &FUNCTION(functions), sources, search);
}

/* Searches B translations by a script in place of a model of V words. */
int FUNCTION(search)(scripted_step *script, long V, long B, const struct search *search, struct results *results) {
    struct searching s = {.search = search, .functions = &FUNCTION(functions), .vocabulary = V, .script = script};
    return run_search(&s, B, results);
}

#undef VARIANT
#undef TARGET
#undef RUNS
#undef INTEGERS
#undef TILE_ROWS
#undef OFFSET
#undef STEP
