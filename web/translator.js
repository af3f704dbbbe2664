// Sentences → sentences: the model with its tokenizer and its search, as decoding/translator.py.

const BEAM = 5;
const LIMIT_SPREADS = 3; // as in decoding/lengths.py
const EXTRA_LENGTH = 10;
const PAPERS_EXTRA_LENGTH = 50;
const END = "⟨end⟩"; // EOS, in pictures

class Translator {
  // description: what decoding/web.py wrote. bytes: the weights, an ArrayBuffer.
  constructor(description, bytes) {
    this.config = description.config;
    this.tags = description.tags;
    this.directions = description.directions;
    this.repairs = description.repairs;
    this.tokenizer = new Tokenizer(description.tokens, description.merges, description.first_text_id);
    this.model = new Transformer(this.config, new Weights(description.weights, bytes));
    this.vocabSize = description.tokens.length;
  }

  // The language of texts that are translated into target, or none if there are several.
  sourceOf(target) {
    const sources = this.directions.filter(([, into]) => into === target).map(([source]) => source);
    return sources.length === 1 ? sources[0] : undefined;
  }

  // The ids of a sentence, after the tag of the target language if the model has several.
  sourceIds(sentence, target) {
    const tag = target in this.tags ? [this.tags[target]] : [];
    return [...tag, ...this.tokenizer.encode(sentence)];
  }

  // How many tokens the translation of a source may have.
  limit(sourceLength) {
    const { length_ratio: ratio, length_spread: spread } = this.config;
    if (!ratio) return sourceLength + PAPERS_EXTRA_LENGTH;
    return Math.ceil(ratio * sourceLength + LIMIT_SPREADS * spread * Math.sqrt(sourceLength)) + EXTRA_LENGTH;
  }

  // One sentence → its translation, and the ids of both. `pause` is awaited before each step, and may throw.
  async translateSentence(sentence, target, isBeam, pause = async () => {}) {
    const source = this.sourceIds(sentence, target);
    const cache = new DecoderCache(this.model.encode([...source, EOS]));
    const step = async (tokens, parents) => {
      await pause();
      cache.select(parents);
      return this.model.project(this.model.decode(tokens, cache));
    };
    const limit = this.limit(source.length);
    const { firstTextId } = this.tokenizer;
    const ids = isBeam
      ? await beamSearch(step, limit, BEAM, this.vocabSize, firstTextId)
      : await greedySearch(step, limit, this.vocabSize, firstTextId);
    return { text: normalizeSpaces(this.tokenizer.decode(ids)), source, ids };
  }

  // A line of text as the sentences that are translated one by one.
  splitLine(line, target) {
    const longest = this.config.max_length;
    // A token has at least one byte, and a character at most three: short pieces need not be encoded.
    const fits = (piece) => 3 * piece.length <= longest || this.tokenizer.encode(piece).length <= longest;
    return splitLine(this.repairs ? repaired(line) : line, this.sourceOf(target), fits);
  }

  // What each token of a translation attended to: in the last layer, the mean of the heads.
  async attention(source, ids, pause = async () => {}) {
    const cache = new DecoderCache(this.model.encode([...source, EOS]));
    const rows = [];
    for (const token of [BOS, ...ids]) {
      await pause();
      const row = new Array(source.length + 1).fill(0);
      this.model.decode([token], cache, (weights) => {
        weights.forEach((weight, s) => (row[s] += weight / this.config.n_heads));
      });
      rows.push(row);
    }
    return { source: [...this.tokenizer.pieces(source), END], target: [...this.tokenizer.pieces(ids), END], rows };
  }
}
