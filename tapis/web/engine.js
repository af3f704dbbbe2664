// The engine: tapis/engine/engine.c as a WebAssembly module, and the model in its memory, as tapis/engine/engine.py.
//
// In the module, a pointer, a `long` and a `float` have 32 bits each. A structure of engine.c that has only these is
// therefore an array of words, and structures are written here field by field, as arrays of numbers.

const EOS = 3;
const PANEL = 32; // as in engine.c: columns of packed weights that lie side by side
const DEPTH = 8; // as in engine.c: numbers of a column of packed weights, a multiple of it
const REMAINDERS = 65534; // as in exporting/web_page.py
const LENGTH_PENALTY = 1.5;
const DONE = 1; // the outcome of a search that was not cut short

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
}

// The encodings of the first n positions, (n, d): sines and cosines.
function sinusoids(n, d) {
  const encodings = new Float32Array(n * d);
  for (let i = 0; i < d; i += 2) {
    const frequency = Math.exp((i * -Math.log(10000)) / d);
    for (let position = 0; position < n; position++) {
      encodings[position * d + i] = Math.sin(position * frequency);
      encodings[position * d + i + 1] = Math.cos(position * frequency);
    }
  }
  return encodings;
}

function lengthPenalty(length) {
  return ((5 + length) / 6) ** LENGTH_PENALTY;
}

function concatenated(Kind, arrays) {
  const all = new Kind(arrays.reduce((n, array) => n + array.length, 0));
  let end = 0;
  for (const array of arrays) {
    all.set(array, end);
    end += array.length;
  }
  return all;
}

class Engine {
  // code: the bytes of the module. Ids after EOS and before firstTextId, tags of languages, are never generated.
  constructor(code, config, weights, firstTextId) {
    this.functions = new WebAssembly.Instance(new WebAssembly.Module(code)).exports;
    this.functions._initialize();
    this.config = config;
    this.weights = weights;
    this.tags = [EOS + 1, firstTextId - EOS - 1];
    this.borrowed = []; // what is freed after a call

    const { d_model: d, n_heads: nHeads, n_encoder_layers: nEncoder, n_decoder_layers: nDecoder, norm, eps } = config;
    const source = this.embedding("src_embed.embedding.weight");
    const [ofSource, ofTarget] = ["src", "tgt"].map((side) => weights.table[`${side}_embed.embedding.weight`].offset);
    const [epsilon] = new Int32Array(Float32Array.of(eps).buffer);
    this.model = this.keep(
      Int32Array.of(
        ...[d, nHeads, norm === "pre" ? 1 : 0, nEncoder, nDecoder],
        ...[this.blocks("encoder", nEncoder), this.blocks("decoder", nDecoder)],
        ...[...this.norm("encoder.norm"), ...this.norm("decoder.norm")],
        ...[source, ofTarget === ofSource ? source : this.embedding("tgt_embed.embedding.weight")],
        ...[...this.linear("projection.linear"), epsilon],
      ),
    );
    this.weights = null; // the module has them
    this.nPositions = 0;
    this.positions = 0;
  }

  // Memory of the module

  // The pointer to `size` bytes.
  allocate(size) {
    const pointer = this.functions.malloc(Math.max(size, 1));
    if (!pointer) throw new Error("there is not enough memory for this model");
    return pointer >>> 0;
  }

  // n numbers at a pointer. The array is valid until more memory is allocated.
  view(Kind, pointer, n) {
    return new Kind(this.functions.memory.buffer, pointer, n);
  }

  // The pointer to a copy of an array.
  keep(array) {
    const pointer = this.allocate(array.byteLength);
    this.view(array.constructor, pointer, array.length).set(array);
    return pointer;
  }

  // The same, until the call ends.
  lend(array) {
    const pointer = this.keep(array);
    this.borrowed.push(pointer);
    return pointer;
  }

  // What `work` returns; what it lent is freed.
  call(work) {
    try {
      return work();
    } finally {
      for (const pointer of this.borrowed.splice(0)) this.functions.free(pointer);
    }
  }

  // The structures of the model

  norm(name) {
    if (!this.weights.has(`${name}.alpha`)) return [0, 0];
    return ["alpha", "bias"].map((part) => this.keep(this.weights.array(`${name}.${part}`)));
  }

  // Several layers that read the same vectors, as one.
  linear(...names) {
    const weights = names.map((name) => this.weights.array(`${name}.weight`));
    const scales = names.map((name) => this.weights.array(`${name}.weight.scale`));
    const bias = names.map((name, i) =>
      this.weights.has(`${name}.bias`) ? this.weights.array(`${name}.bias`) : new Float32Array(scales[i].length),
    );
    const nIn = this.weights.table[`${names[0]}.weight`].shape[1];
    const scale = concatenated(Float32Array, scales);
    const nOut = scale.length;
    const nPadded = Math.ceil(nOut / PANEL) * PANEL;
    const padded = (array) => concatenated(array.constructor, [array, new array.constructor(nPadded - nOut)]);

    // Pack the weights: panels of 32 columns, four numbers of each. Sum each column.
    const depth = Math.ceil(nIn / DEPTH) * DEPTH;
    const weight = this.allocate(nPadded * depth);
    const packed = this.view(Int8Array, weight, nPadded * depth).fill(0);
    const sums = new Int32Array(nOut);
    let column = 0;
    for (const matrix of weights) {
      for (let start = 0; start < matrix.length; start += nIn, column++) {
        const first = (column - (column % PANEL)) * depth + 4 * (column % PANEL);
        let sum = 0;
        for (let i = 0; i < nIn; i++) {
          packed[first + (i >> 2) * 4 * PANEL + (i & 3)] = matrix[start + i];
          sum += matrix[start + i];
        }
        sums[column] = sum;
      }
    }
    const rest = [sums, scale, concatenated(Float32Array, bias)].map((array) => this.keep(padded(array)));
    return [weight, ...rest, nIn, nOut];
  }

  // An array of blocks.
  blocks(stack, n) {
    const none = new Array(6).fill(0);
    const words = [];
    for (let i = 0; i < n; i++) {
      const block = `${stack}.blocks.${i}`;
      const isDecoder = stack === "decoder";
      const [own, source] = [`${block}.self_attention`, `${block}.cross_attention`];
      words.push(
        ...this.norm(`${block}.residuals.0.norm`),
        ...(isDecoder ? this.norm(`${block}.residuals.1.norm`) : [0, 0]),
        ...this.norm(`${block}.residuals.${isDecoder ? 2 : 1}.norm`),
        ...this.linear(`${own}.w_q`, `${own}.w_k`, `${own}.w_v`),
        ...this.linear(`${own}.w_o`),
        ...(isDecoder ? this.linear(`${source}.w_q`) : none),
        ...(isDecoder ? this.linear(`${source}.w_k`, `${source}.w_v`) : none),
        ...(isDecoder ? this.linear(`${source}.w_o`) : none),
        ...this.linear(`${block}.feed_forward.linear_1`),
        ...this.linear(`${block}.feed_forward.linear_2`),
      );
    }
    return this.keep(Int32Array.from(words));
  }

  // Embeddings in 32 bits. In the file, a weight has 8 bits and a remainder of 16 bits.
  embedding(name) {
    const [weight, remainder, scale] = ["", ".remainder", ".scale"].map((part) => this.weights.array(name + part));
    const d = this.config.d_model;
    const pointer = this.allocate(4 * weight.length);
    const numbers = this.view(Float32Array, pointer, weight.length);
    for (let row = 0; row < scale.length; row++) {
      const factor = scale[row];
      for (let i = row * d; i < (row + 1) * d; i++) numbers[i] = (weight[i] + remainder[i] / REMAINDERS) * factor;
    }
    return pointer;
  }

  // Searches

  // A sentence of ids without EOS, as one of `sentences`.
  sentence(ids) {
    const tokens = BigInt64Array.from([...ids, EOS], BigInt);
    const lengths = BigInt64Array.of(BigInt(tokens.length));
    return this.lend(Int32Array.of(this.lend(tokens), this.lend(lengths), 1));
  }

  // The settings of a search: `struct search`.
  search(nSource, limit, beam, nBest) {
    // Make the table of positions longer if the search may ask for more.
    const n = Math.max(nSource + 1, 2 * limit);
    if (n > this.nPositions) {
      this.functions.free(this.positions);
      this.nPositions = 2 * n;
      this.positions = this.keep(sinusoids(this.nPositions, this.config.d_model));
    }

    const limits = this.lend(BigInt64Array.of(BigInt(limit)));
    const penalties = this.lend(Float32Array.from({ length: limit + 1 }, (_, length) => lengthPenalty(length)));
    const settings = this.lend(Int32Array.of(beam, nBest, ...this.tags, limits, penalties, 0, 0));
    this.functions.use_positions(settings, this.positions);
    return settings;
  }

  // The best translations of a source, best first: the ids, the score, and log P of the ids and the end, which is null for
  // a translation without an end.
  translate(source, limit, { beam = 1, nBest = 1 }) {
    return this.call(() => {
      const lengths = this.lend(new Int32Array(nBest));
      const scores = this.lend(new Float32Array(nBest));
      const results = this.lend(Int32Array.of(lengths, scores, 0));
      const settings = this.search(source.length, limit, beam, nBest);
      this.check(this.functions.translate_wasm_simd128(this.model, this.sentence(source), settings, results));

      const [, , ids] = this.view(Uint32Array, results, 3);
      const found = [];
      let end = ids;
      for (const [i, length] of Array.from(this.view(Int32Array, lengths, nBest)).entries()) {
        if (length < 0) continue; // fewer were found
        const tokens = Array.from(this.view(BigInt64Array, end, length), Number);
        const score = this.view(Float32Array, scores, nBest)[i];
        found.push({ ids: tokens, score, logP: length < limit ? score * lengthPenalty(length + 1) : null });
        end += 8 * length;
      }
      this.functions.release(ids);
      return found;
    });
  }

  // Of a translation that is given, log P of its ids and the end.
  logP(source, target) {
    return this.force(source, target, false).logP;
  }

  // What each token of a translation and its end attended to: in the last layer, the mean of the heads.
  attention(source, target) {
    const { n_heads: nHeads, n_decoder_layers: nLayers } = this.config;
    const [nRows, nColumns] = [target.length + 1, source.length + 1];
    const size = nRows * nColumns;
    const heads = this.force(source, target, true).weights.slice((nLayers - 1) * nHeads * size);
    return Array.from({ length: nRows }, (_, row) =>
      Array.from({ length: nColumns }, (_, column) => {
        let sum = 0;
        for (let head = 0; head < nHeads; head++) sum += heads[head * size + row * nColumns + column];
        return sum / nHeads;
      }),
    );
  }

  // log P, and the weights of attention, (layers, heads, T + 1, S + 1), if they are wanted.
  force(source, target, withWeights) {
    const { n_heads: nHeads, n_decoder_layers: nLayers } = this.config;
    const n = withWeights ? nLayers * nHeads * (target.length + 1) * (source.length + 1) : 0;
    return this.call(() => {
      const logP = this.lend(new Float64Array(1));
      const weights = withWeights ? this.lend(new Float32Array(n)) : 0;
      const forced = this.lend(Int32Array.of(logP, weights));
      const settings = this.search(source.length, target.length + 1, 1, 1);
      const [from, to] = [this.sentence(source), this.sentence(target)];
      this.check(this.functions.force_wasm_simd128(this.model, from, settings, to, forced));
      return { logP: this.view(Float64Array, logP, 1)[0], weights: this.view(Float32Array, weights, n).slice() };
    });
  }

  check(outcome) {
    if (outcome !== DONE) throw new Error("there is not enough memory for this sentence");
  }
}
