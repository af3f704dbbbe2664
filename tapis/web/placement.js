// Marks are put back into a translation, by an alignment of its words with those of its source, as
// tapis/text/placement.py.

const DEEPEST = 50; // pairs of tags within each other; what is deeper goes where the pair around it is
// The order of marks at one place between words: spans end before others begin.
const [WITHIN_ENDING, CLOSING, BETWEEN, OPENING, WITHIN_BEGINNING] = [0, 1, 2, 3, 4];
const TRAILING_PUNCTUATION = /[.,;:!?…)\]»”]*$/u;

// The translation with the marks of its source. taken: the source without them, as `takeOut` returned it.
function putBack(translation, taken, alignment) {
  const words = splitAtSpaces(translation);
  const { marks } = taken;
  const spans = spansOf(words, taken, alignment);

  // For each place between words, the marks there, as [order, order among these, number].
  const at = Array.from({ length: words.length + 1 }, () => []);
  const enclosing = []; // the spans around the current mark, the innermost last
  marks.forEach((mark, number) => {
    if (!spans.has(number)) {
      let place = placeOfThing(mark, alignment);
      let order = BETWEEN;
      if (enclosing.length) {
        const [first, last] = enclosing.at(-1);
        place = Math.min(Math.max(place, first), last);
        order = place === last ? WITHIN_ENDING : WITHIN_BEGINNING;
      }
      at[place].push([order, number, number]);
    } else if (mark.partner > number) {
      at[spans.get(number)[0]].push([OPENING, number, number]);
      enclosing.push(spans.get(number));
    } else {
      at[spans.get(number)[1]].push([CLOSING, -mark.partner, number]);
      enclosing.pop();
    }
  });

  // Write the words, and the marks between them.
  const parts = []; // each with whether it is of the translation
  let isAfterOpening = true;
  at.forEach((here, place) => {
    here.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
    for (const [order, , number] of here) {
      const mark = marks[number];
      const [isOpening, isClosing] = [order === OPENING, order === CLOSING];
      const last = parts.at(-1);
      let tail = "";
      if (mark.isBeforePunctuation && last?.isTranslated && !isOpening) {
        [tail] = last.text.match(TRAILING_PUNCTUATION);
        last.text = last.text.slice(0, last.text.length - tail.length).trimEnd();
      }
      const followsMark = parts.length > 0 && !parts.at(-1).isTranslated;
      const needsNoSpace = isClosing || isAfterOpening || (mark.isGlued && (followsMark || !isOpening));
      parts.push({ text: needsNoSpace ? "" : " ", isTranslated: true }, { text: mark.text, isTranslated: false });
      if (tail) parts.push({ text: tail, isTranslated: true });
      isAfterOpening = isOpening || (mark.isFollowed && !tail);
    }
    if (place < words.length) {
      parts.push({ text: (isAfterOpening ? "" : " ") + words[place], isTranslated: true });
      isAfterOpening = false;
    }
  });
  return parts.map(({ text }) => text).join("");
}

// How many words of the translation are before a mark that is no pair of tags.
function placeOfThing(mark, alignment) {
  const { nTarget, nSource } = alignment;
  if (mark.word >= nSource || !nTarget) return nTarget;
  if (mark.kind === "number") return alignment.best(mark.word); // it belongs to the word after it
  return mark.word ? Math.min(alignment.best(mark.word - 1) + 1, nTarget) : 0;
}

// For each tag of a pair around words the first word of the translation within it, and the last + 1. Pairs within pairs
// stay within them.
function spansOf(words, { words: sourceWords, marks }, alignment) {
  const spans = new Map();
  const enclosing = [[0, words.length]];
  marks.forEach((mark, number) => {
    if (mark.partner >= 0 && mark.partner < number && spans.has(number)) enclosing.pop();
    if (mark.partner < number || !words.length) return;
    const [start, end] = [mark.word, marks[mark.partner].word];
    if (start >= end) return; // around nothing
    let [low, high] = enclosing.at(-1);
    if (end - start < sourceWords.length && enclosing.length <= DEEPEST) {
      const [first, shares] = alignment.shares(start, end);
      const within = shares.slice(Math.max(0, low - first), Math.max(0, high - first));
      const run = within.length ? bestRun(within.map((share) => share - 0.5)) : null;
      [low, high] = run ? run.map((place) => Math.max(low, first) + place) : [low, low + 1];
      const isAlone = (word) => !/[\p{L}\p{N}]/u.test(word); // punctuation that stands alone
      while (high - low > 1 && isAlone(words[high - 1]) && end < sourceWords.length) high -= 1;
    }
    spans.set(number, [low, high]);
    spans.set(mark.partner, [low, high]);
    enclosing.push([low, high]);
  });
  return spans;
}

// The start and the end of the run with the largest sum, which has at least one place.
function bestRun(gains) {
  let best = -Infinity;
  let run = [0, 1];
  let total = 0;
  let start = 0;
  gains.forEach((gain, place) => {
    if (total <= 0) [total, start] = [0, place];
    total += gain;
    if (total > best) [best, run] = [total, [start, place + 1]];
  });
  return run;
}
