// The tokenizer: text ↔ token ids by byte pair encoding, as tapis/text/tokenizer.py.

const WORD_PREFIX = " ";

// The pattern of tapis/text/tokenizer.py. \s is written out, since JavaScript's differs from Python's in U+0085 and U+FEFF.
const SPACE = "\\t-\\r\\x85\\p{Z}";
const WORD_PATTERN = new RegExp(
  " ?[\\p{L}\\p{M}]+(?:['’][\\p{L}\\p{M}]+)*" +
    "| ?\\p{N}+" +
    `| ?[^${SPACE}\\p{L}\\p{M}\\p{N}]+` +
    `|[${SPACE}]+(?![^${SPACE}])` +
    `|[${SPACE}]+`,
  "gu",
);

// One character for each byte: printable bytes for themselves, the others for the characters from U+0100 on.
const CHARACTER_OF_BYTE = [];
for (let byte = 0, nOthers = 0; byte < 256; byte++) {
  const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte !== 0xad);
  CHARACTER_OF_BYTE.push(String.fromCharCode(isPrintable ? byte : 0x100 + nOthers++));
}
const BYTE_OF_CHARACTER = new Map(CHARACTER_OF_BYTE.map((character, byte) => [character, byte]));

class Tokenizer {
  // tokens: the vocabulary in the order of the ids. merges: two ids for each pair, in the order in which pairs were
  // learned.
  // firstTextId: the first id after the special tokens and the tags.
  constructor(tokens, merges, firstTextId) {
    this.tokens = tokens;
    this.firstTextId = firstTextId;
    this.idOfToken = new Map(tokens.map((token, id) => [token, id]));
    this.rankOfPair = new Map();
    for (let i = 0; i < merges.length; i += 2) this.rankOfPair.set(this.pairKey(merges[i], merges[i + 1]), i / 2);
    this.idsOfWord = new Map(); // words that were encoded before
  }

  pairKey(left, right) {
    return left * this.tokens.length + right;
  }

  // The ids of a text, without special tokens and tags. A lone surrogate becomes U+FFFD.
  encode(text) {
    const words = (WORD_PREFIX + text).match(WORD_PATTERN);
    return words.flatMap((word) => this.encodeWord(word));
  }

  encodeWord(word) {
    let ids = this.idsOfWord.get(word);
    if (!ids) {
      const bytes = Array.from(new TextEncoder().encode(word));
      ids = this.merge(bytes.map((byte) => this.idOfToken.get(CHARACTER_OF_BYTE[byte])));
      this.idsOfWord.set(word, ids);
    }
    return ids;
  }

  // Merge the pair that was learned first, wherever it occurs, until no pair can be merged.
  merge(ids) {
    for (;;) {
      let best = Infinity;
      for (let i = 0; i + 1 < ids.length; i++) {
        const rank = this.rankOfPair.get(this.pairKey(ids[i], ids[i + 1]));
        if (rank < best) best = rank;
      }
      if (best === Infinity) return ids;

      const shorter = [];
      for (let i = 0; i < ids.length; i++) {
        const isPair = i + 1 < ids.length && this.rankOfPair.get(this.pairKey(ids[i], ids[i + 1])) === best;
        shorter.push(isPair ? this.idOfToken.get(this.tokens[ids[i]] + this.tokens[ids[i + 1]]) : ids[i]);
        if (isPair) i++;
      }
      ids = shorter;
    }
  }

  bytes(ids) {
    const characters = ids.flatMap((id) => Array.from(this.tokens[id]));
    return Uint8Array.from(characters, (character) => BYTE_OF_CHARACTER.get(character));
  }

  // The text of ids. Special tokens and tags are skipped; invalid UTF-8 becomes U+FFFD.
  decode(ids) {
    const bytes = this.bytes(ids.filter((id) => id >= this.firstTextId));
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    return text.startsWith(WORD_PREFIX) ? text.slice(WORD_PREFIX.length) : text;
  }

  // Each token as readable text: whitespace as ▁, an incomplete character as its bytes (⟨e2 80⟩), a tag as it is.
  pieces(ids) {
    return ids.map((id) => {
      if (id < this.firstTextId) return this.tokens[id];
      const bytes = this.bytes([id]);
      try {
        const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
        return text.replace(/\s/gu, "▁");
      } catch {
        return `⟨${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ")}⟩`;
      }
    });
  }
}
