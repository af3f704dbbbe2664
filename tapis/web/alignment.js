// Which words of a translation come from which words of its source, as tapis/text/alignment.py.

const SMOOTHING = 0.1; // words of a translation, added to those that attend to a word of the source

// How many of some sorted numbers are below another one.
function countBelow(sorted, number) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

const sumOf = (numbers) => numbers.reduce((a, b) => a + b, 0);

// The numbers of each row as shares of it.
function ofRows(rows) {
  return rows.map((row) => {
    const sum = Math.max(1e-9, sumOf(row));
    return row.map((weight) => weight / sum);
  });
}

// How much each word of a translation comes from each word of its source, sentence by sentence.
class Alignment {
  // blocks: of each sentence { nTarget, nSource, weights }, with rows of weights for the words of the translation.
  constructor(blocks) {
    this.blocks = blocks.map(({ nTarget, nSource, weights }) => {
      const rows = ofRows(weights);
      const ofColumns = Array.from({ length: nSource }, (_, i) => sumOf(rows.map((row) => row[i])) + SMOOTHING);
      return { nTarget, nSource, weights: ofRows(rows.map((row) => row.map((weight, i) => weight / ofColumns[i]))) };
    });
    [this.rows, this.columns] = ["nTarget", "nSource"].map((side) => {
      const ends = [0];
      for (const block of blocks) ends.push(ends.at(-1) + block[side]);
      return ends;
    });
    [this.nTarget, this.nSource] = [this.rows.at(-1), this.columns.at(-1)];
  }

  // The word of the translation that comes most from a word of the source.
  best(word) {
    const i = countBelow(this.columns, word + 1) - 1;
    const column = this.blocks[i].weights.map((row) => row[word - this.columns[i]]);
    return this.rows[i] + (column.length ? column.indexOf(Math.max(...column)) : 0);
  }

  // The first word of the translation of a sentence that begins with a word; null if none does.
  border(word) {
    const i = countBelow(this.columns, word);
    return this.columns[i] === word ? this.rows[i] : null;
  }

  // How much of words of the translation comes from words of the source from start to end: the first of the words of
  // the translation, and a share for it and each that follows. All others have none.
  shares(start, end) {
    const first = Math.max(0, countBelow(this.columns, start + 1) - 1);
    const last = Math.max(first, Math.min(this.blocks.length, countBelow(this.columns, end)));
    const shares = this.blocks.slice(first, last).flatMap(({ weights }, i) => {
      const column = this.columns[first + i];
      const [from, to] = [Math.max(0, start - column), Math.max(0, end - column)];
      return weights.map((row) => row.slice(from, to).reduce((a, b) => a + b, 0));
    });
    return [this.rows[first], shares];
  }
}

// An alignment of words in the same order, as far as is known.
class SamePlaces {
  constructor(nTarget, nSource) {
    [this.nTarget, this.nSource] = [nTarget, nSource];
  }

  border(word) {
    return word ? null : 0;
  }

  best(word) {
    const place = Math.trunc(((word + 0.5) * this.nTarget) / Math.max(1, this.nSource));
    return Math.min(place, Math.max(0, this.nTarget - 1));
  }

  shares(start, end) {
    const [first, last] = [start, end].map((place) => Math.floor((place * this.nTarget) / Math.max(1, this.nSource)));
    return [first, new Array(last - first).fill(1)];
  }
}

// The blocks of n words that stay as they are: one for each word. A single block would take n² numbers.
function sameWords(n) {
  return new Array(n).fill({ nTarget: 1, nSource: 1, weights: [[1]] });
}

const BEGINS_WORD = /^(?:▁|⟨20 )/u; // a space, or a space and a part of a character (⟨20 e2 80⟩)

// The block of a translation, from what its tokens attended to. A word is a token that begins with a space, and the
// tokens after it that do not. A token before the first of them, such as a tag of the target language, belongs to none.
function wordAlignment({ source, target, rows }) {
  const wordsOf = (pieces) => {
    let word = -1;
    return pieces.slice(0, -1).map((piece) => (BEGINS_WORD.test(piece) ? (word += 1) : word)); // without the end
  };
  const [ofSource, ofTarget] = [wordsOf(source), wordsOf(target)];
  const [nSource, nTarget] = [ofSource, ofTarget].map((words) => Math.max(-1, ...words) + 1);
  const weights = Array.from({ length: nTarget }, () => new Array(nSource).fill(0));
  ofTarget.forEach((word, t) => {
    ofSource.forEach((other, s) => {
      if (word >= 0 && other >= 0) weights[word][other] += rows[t][s];
    });
  });
  return { nTarget, nSource, weights };
}
