// The Transformer, as model.py has it, for one sentence at a time. Read it beside model.py: the names are the same.
//
// Vectors are rows of D = d_model numbers, one after another in a Float32Array. A sentence has no padding, and the
// decoder computes one position at a time, so that no masks are needed. Linear layers are in 8 bits (linear.js).
// Keys and values are kept in 16 bits, as tapis/engine/engine.c keeps them.

const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const REMAINDERS = 65534; // as in exporting/web_page.py

const ARRAYS = { float32: Float32Array, int16: Int16Array, int8: Int8Array };

// The weights by name: float32 arrays, and int8 matrices with the scales of their rows.
class Weights {
  // table: for each name its type, shape, and offset in bytes (an ArrayBuffer).
  constructor(table, bytes) {
    this.table = table;
    this.bytes = bytes;
  }

  has(name) {
    return name in this.table;
  }

  array(name) {
    const { type, shape, offset } = this.table[name];
    const size = shape.reduce((a, b) => a * b, 1);
    return new ARRAYS[type](this.bytes, offset, size);
  }

  linear(name) {
    const weight = `${name}.weight`;
    const bias = this.has(`${name}.bias`) ? this.array(`${name}.bias`) : null;
    return new Linear(this.array(weight), this.array(`${weight}.scale`), bias, this.table[weight].shape[1]);
  }

  norm(name) {
    return { alpha: this.array(`${name}.alpha`), bias: this.array(`${name}.bias`) };
  }
}

// Token ids → vectors, multiplied by √D (section 3.4 of the paper). A weight has 8 bits and a remainder of 16 bits.
class InputEmbeddings {
  constructor(weights, name, d) {
    this.d = d;
    this.weight = weights.array(`${name}.weight`);
    this.remainder = weights.array(`${name}.weight.remainder`);
    this.scale = weights.array(`${name}.weight.scale`);
  }

  forward(ids) {
    const { d, weight, remainder, scale } = this;
    const x = new Float32Array(ids.length * d);
    for (let t = 0; t < ids.length; t++) {
      const factor = scale[ids[t]] * Math.sqrt(d);
      for (let i = 0; i < d; i++) {
        const place = ids[t] * d + i;
        x[t * d + i] = (weight[place] + remainder[place] / REMAINDERS) * factor;
      }
    }
    return x;
  }
}

// The sines and cosines of a position (section 3.5).
function sinusoids(position, d) {
  const encoding = new Float32Array(d);
  for (let i = 0; i < d; i += 2) {
    const angle = position * Math.exp((i * -Math.log(10000)) / d);
    encoding[i] = Math.sin(angle);
    encoding[i + 1] = Math.cos(angle);
  }
  return encoding;
}

function add(x, y) {
  return x.map((value, i) => value + y[i]);
}

// alpha · (x − mean) / √(variance + eps) + bias, row by row.
function layerNormalization(norm, x, d, eps) {
  const y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += d) {
    let mean = 0;
    let variance = 0;
    for (let i = start; i < start + d; i++) mean += x[i] / d;
    for (let i = start; i < start + d; i++) variance += (x[i] - mean) ** 2 / d;
    const factor = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < d; i++) y[start + i] = norm.alpha[i] * (x[start + i] - mean) * factor + norm.bias[i];
  }
  return y;
}

// Numbers rounded to bfloat16: the upper 16 bits of a float32, ties to even.
function roundTo16Bits(x) {
  const bits = new Uint32Array(x.buffer);
  for (let i = 0; i < bits.length; i++) bits[i] = (bits[i] + 0x7fff + ((bits[i] >>> 16) & 1)) & 0xffff0000;
  return x;
}

// The rows of x, each as an array of its own.
function rowsOf(x, d) {
  return Array.from({ length: x.length / d }, (_, r) => x.subarray(r * d, (r + 1) * d));
}

// softmax(q Kᵀ / √K) of one query for one head: the weights over the positions (section 3.2.1).
function attentionWeights(query, keys, start, size) {
  const weights = new Float64Array(keys.length);
  let largest = -Infinity;
  for (let s = 0; s < keys.length; s++) {
    const key = keys[s];
    let product = 0;
    for (let i = start; i < start + size; i++) product += query[i] * key[i];
    weights[s] = product / Math.sqrt(size);
    largest = Math.max(largest, weights[s]);
  }
  let sum = 0;
  for (let s = 0; s < keys.length; s++) {
    weights[s] = Math.exp(weights[s] - largest);
    sum += weights[s];
  }
  for (let s = 0; s < keys.length; s++) weights[s] /= sum;
  return weights;
}

// H attentions side by side, each in D / H dimensions (section 3.2.2).
class MultiHeadAttentionBlock {
  constructor(weights, name, nHeads) {
    this.nHeads = nHeads;
    [this.wQ, this.wK, this.wV, this.wO] = ["q", "k", "v", "o"].map((part) => weights.linear(`${name}.w_${part}`));
  }

  // The keys and values of positions, one array for each position.
  keysAndValues(quantized) {
    const d = this.wK.nOut;
    return {
      keys: rowsOf(roundTo16Bits(this.wK.forward(quantized)), d),
      values: rowsOf(roundTo16Bits(this.wV.forward(quantized)), d),
    };
  }

  // What a query attends to: the weighted sum of the values, for each head. `record` receives each head's weights.
  attend(query, keys, values, record) {
    const d = query.length;
    const size = d / this.nHeads;
    const y = new Float32Array(d);
    for (let start = 0; start < d; start += size) {
      const weights = attentionWeights(query, keys, start, size);
      if (record) record(weights);
      for (let s = 0; s < values.length; s++) {
        const value = values[s];
        const weight = weights[s];
        for (let i = start; i < start + size; i++) y[i] += weight * value[i];
      }
    }
    return y;
  }

  // Project the queries, attend, concatenate. memories has the keys and values that each query may attend to.
  forward(quantized, memories, record) {
    const d = this.wQ.nOut;
    const queries = rowsOf(this.wQ.forward(quantized), d);
    const y = new Float32Array(quantized.n * d);
    for (let r = 0; r < queries.length; r++) {
      y.set(this.attend(queries[r], memories[r].keys, memories[r].values, record), r * d);
    }
    return this.wO.forward(quantize(y, d));
  }
}

// max(0, x W₁ + b₁) W₂ + b₂ (section 3.3).
class FeedForwardBlock {
  constructor(weights, name) {
    this.linear1 = weights.linear(`${name}.linear_1`);
    this.linear2 = weights.linear(`${name}.linear_2`);
  }

  forward(quantized) {
    const hidden = this.linear1.forward(quantized);
    for (let i = 0; i < hidden.length; i++) hidden[i] = Math.max(0, hidden[i]);
    return this.linear2.forward(quantize(hidden, this.linear1.nOut));
  }
}

// x + sublayer(norm(x)), or in the paper's order norm(x + sublayer(x)).
class ResidualConnection {
  constructor(weights, name, config) {
    this.norm = weights.norm(`${name}.norm`);
    this.config = config;
  }

  forward(x, sublayer) {
    const { norm, d_model: d, eps } = this.config;
    const normalize = (y) => layerNormalization(this.norm, y, d, eps);
    if (norm === "pre") return add(x, sublayer(quantize(normalize(x), d)));
    return normalize(add(x, sublayer(quantize(x, d))));
  }
}

class EncoderBlock {
  constructor(weights, name, config) {
    this.selfAttention = new MultiHeadAttentionBlock(weights, `${name}.self_attention`, config.n_heads);
    this.feedForward = new FeedForwardBlock(weights, `${name}.feed_forward`);
    this.residuals = [0, 1].map((i) => new ResidualConnection(weights, `${name}.residuals.${i}`, config));
  }

  forward(x) {
    x = this.residuals[0].forward(x, (y) => {
      const all = this.selfAttention.keysAndValues(y);
      return this.selfAttention.forward(y, new Array(y.n).fill(all));
    });
    return this.residuals[1].forward(x, (y) => this.feedForward.forward(y));
  }
}

class DecoderBlock {
  constructor(weights, name, config) {
    this.selfAttention = new MultiHeadAttentionBlock(weights, `${name}.self_attention`, config.n_heads);
    this.crossAttention = new MultiHeadAttentionBlock(weights, `${name}.cross_attention`, config.n_heads);
    this.feedForward = new FeedForwardBlock(weights, `${name}.feed_forward`);
    this.residuals = [0, 1, 2].map((i) => new ResidualConnection(weights, `${name}.residuals.${i}`, config));
  }

  // past: for each row the keys and values of its earlier positions, which takes in those of this one.
  forward(x, past, source, record) {
    x = this.residuals[0].forward(x, (y) => {
      const { keys, values } = this.selfAttention.keysAndValues(y);
      for (let r = 0; r < y.n; r++) {
        past[r].keys.push(keys[r]);
        past[r].values.push(values[r]);
      }
      return this.selfAttention.forward(y, past);
    });
    x = this.residuals[1].forward(x, (y) => {
      return this.crossAttention.forward(y, new Array(y.n).fill(source), record);
    });
    return this.residuals[2].forward(x, (y) => this.feedForward.forward(y));
  }
}

// What the decoder computed at earlier steps of one sentence: the keys and values of each layer.
class DecoderCache {
  constructor(memory) {
    this.memory = memory; // of each layer, the keys and values of the source
    this.past = memory.map(() => [{ keys: [], values: [] }]); // of each layer, those of each hypothesis
    this.length = 0;
  }

  // Keeps these hypotheses, in this order. One may be kept several times.
  select(rows) {
    this.past = this.past.map((layer) =>
      rows.map((row) => ({ keys: layer[row].keys.slice(), values: layer[row].values.slice() })),
    );
  }
}

class Transformer {
  constructor(config, weights) {
    const range = (n) => Array.from({ length: n }, (_, i) => i);
    this.config = config;
    this.srcEmbed = new InputEmbeddings(weights, "src_embed.embedding", config.d_model);
    this.tgtEmbed = new InputEmbeddings(weights, "tgt_embed.embedding", config.d_model);
    this.encoder = range(config.n_encoder_layers).map((i) => new EncoderBlock(weights, `encoder.blocks.${i}`, config));
    this.decoder = range(config.n_decoder_layers).map((i) => new DecoderBlock(weights, `decoder.blocks.${i}`, config));
    this.encoderNorm = config.norm === "pre" ? weights.norm("encoder.norm") : null;
    this.decoderNorm = config.norm === "pre" ? weights.norm("decoder.norm") : null;
    this.projection = weights.linear("projection.linear");
    this.encodings = []; // of positions, made when they are first needed
  }

  // Adds the encodings of the positions from `start` on. Rows at the same position have a `step` of 0.
  addPositions(x, start, step) {
    const d = this.config.d_model;
    for (let r = 0; r < x.length / d; r++) {
      const position = start + r * step;
      this.encodings[position] ??= sinusoids(position, d);
      for (let i = 0; i < d; i++) x[r * d + i] += this.encodings[position][i];
    }
    return x;
  }

  // The sum that leaves a stack, normalized once more if the model is pre-norm.
  leaveStack(norm, x) {
    return norm ? layerNormalization(norm, x, this.config.d_model, this.config.eps) : x;
  }

  // Source ids, with EOS → the memory: the keys and values that each decoder layer attends to.
  encode(src) {
    let x = this.addPositions(this.srcEmbed.forward(src), 0, 1);
    for (const block of this.encoder) x = block.forward(x);
    const quantized = quantize(this.leaveStack(this.encoderNorm, x), this.config.d_model);
    return this.decoder.map((block) => block.crossAttention.keysAndValues(quantized));
  }

  // The last token of each hypothesis → vectors. `record` receives the last layer's attention to the source.
  decode(tokens, cache, record) {
    let x = this.addPositions(this.tgtEmbed.forward(tokens), cache.length, 0);
    this.decoder.forEach((block, i) => {
      const isLast = i === this.decoder.length - 1;
      x = block.forward(x, cache.past[i], cache.memory[i], isLast ? record : null);
    });
    cache.length += 1;
    return this.leaveStack(this.decoderNorm, x);
  }

  // Vectors → logits, the rows of the hypotheses one after another.
  project(x) {
    return this.projection.forward(quantize(x, this.config.d_model));
  }
}
