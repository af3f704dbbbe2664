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

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64); // faster, in browsers since 2025
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
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

class Engine {
  // code: the bytes of the module. places: where the weights are, as exporting/web_page.py writes it; `takeWeights` takes
  // them later. Ids after EOS and before firstTextId, tags of languages, are never generated.
  constructor(code, config, places, firstTextId) {
    this.functions = new WebAssembly.Instance(new WebAssembly.Module(code)).exports;
    this.functions._initialize();
    this.config = config;
    this.tags = [EOS + 1, firstTextId - EOS - 1];
    this.borrowed = []; // what is freed after a call
    this.nPositions = 0;
    this.positions = 0;

    this.nBytes = places.size;
    this.nTaken = 0; // of these
    this.weights = this.allocate(this.nBytes);
    this.packedEmbeddings = [];
    const { d_model: d, n_heads: nHeads, norm, eps } = config;
    const source = this.embedding(places.source_embedding);
    const [epsilon] = new Int32Array(Float32Array.of(eps).buffer);
    this.model = this.keep(
      Int32Array.of(
        ...[d, nHeads, norm === "pre" ? 1 : 0, places.encoder.length, places.decoder.length],
        ...[this.blocks(places.encoder), this.blocks(places.decoder)],
        ...[...this.norm(places.encoder_norm), ...this.norm(places.decoder_norm)],
        ...[source, places.target_embedding ? this.embedding(places.target_embedding) : source],
        ...[...this.linear(places.projection), epsilon],
      ),
    );
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

  // The structures of the model, from places

  pointer(offset) {
    return offset === null ? 0 : this.weights + offset;
  }

  norm(offsets) {
    return offsets.map((offset) => this.pointer(offset));
  }

  linear([weight, scale, bias, nIn, nOut]) {
    const zeros = this.keep(new Int32Array(nOut + PANEL)); // for the sums of columns, which the module does not need, too
    return [this.pointer(weight), zeros, this.pointer(scale), bias === null ? zeros : this.pointer(bias), nIn, nOut];
  }

  blocks(places) {
    const words = places.flatMap(({ norms, linears }) => [
      ...norms.flatMap((offsets) => this.norm(offsets)),
      ...linears.flatMap((place) => this.linear(place)),
    ]);
    return this.keep(Int32Array.from(words));
  }

  // Room for an embedding in 32 bits, until its weights are there.
  embedding(place) {
    const [, , , d, nTokens] = place.layer;
    const pointer = this.allocate(4 * nTokens * d);
    this.packedEmbeddings.push({ ...place, pointer });
    return pointer;
  }

  // The weights

  // Takes the next bytes of the weights.
  takeWeights(bytes) {
    this.view(Uint8Array, this.weights + this.nTaken, bytes.length).set(bytes);
    this.nTaken += bytes.length;
    const isThere = ({ layer: [, , , d, nTokens], remainder }) => remainder + 2 * nTokens * d <= this.nTaken;
    while (this.packedEmbeddings.length && isThere(this.packedEmbeddings[0])) {
      this.unpackEmbedding(this.packedEmbeddings.shift());
    }
  }

  hasWeights() {
    return this.nTaken === this.nBytes;
  }

  // In the file, an embedding has 8 bits, packed as engine.c says, and a remainder of 16 bits.
  unpackEmbedding({ layer: [weight, scale, , d, nTokens], remainder, pointer }) {
    const depth = Math.ceil(d / DEPTH) * DEPTH;
    const packed = this.view(Int8Array, this.pointer(weight), Math.ceil(nTokens / PANEL) * PANEL * depth);
    const scales = this.view(Float32Array, this.pointer(scale), nTokens);
    const remainders = this.view(Int16Array, this.pointer(remainder), nTokens * d);
    const numbers = this.view(Float32Array, pointer, nTokens * d);
    for (let token = 0, i = 0; token < nTokens; token++) {
      const column = (token - (token % PANEL)) * depth + 4 * (token % PANEL);
      for (let k = 0; k < d; k++, i++) {
        const rounded = packed[column + (k >> 2) * 4 * PANEL + (k & 3)];
        numbers[i] = (rounded + remainders[i] / REMAINDERS) * scales[token];
      }
    }
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
    const n = Math.max(nSource, limit) + 1;
    if (n > this.nPositions) {
      const longer = this.keep(sinusoids(2 * n, this.config.d_model)); // throws where there is no memory
      this.functions.free(this.positions);
      [this.positions, this.nPositions] = [longer, 2 * n];
    }

    const limits = this.lend(BigInt64Array.of(BigInt(limit)));
    const penalties = this.lend(Float32Array.from({ length: limit + 1 }, (_, length) => lengthPenalty(length)));
    return this.lend(Int32Array.of(beam, nBest, ...this.tags, limits, penalties, this.positions, 0));
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
