// Marks are put back into a translation, by an alignment of its words with those of its source, as
// tapis/text/placement.py. The pairs of tags are a tree, in the line and in its translation.

const DEEPEST = 50; // pairs of tags within each other; of what is deeper, the first pair is where the pair around it is
const FREE = -1; // a word that comes from no pair
const TRAILING_PUNCTUATION = new RegExp(`${OF_PUNCTUATION}*$`, "u");
const SPACED = "!?:;»"; // punctuation that French has a space before
// Letters and punctuation without spaces beside; what has no space behind it in any script
const UNSPACED_SIGN = new RegExp(`^[${BESIDE_MARKS}\\u3000-\\u303f\\uff01-\\uff65]`, "u");
const OPENING = ["(", "[", "«", "“", "„"];
const OF_LAYOUT = /^(?:<[A-Za-z!]|&|\\[nrt])/; // things without spaces beside in any script: <br>, &nbsp;, \n

// The translation with the marks of its source. taken: the source without them, as `takeOut` returned it.
function putBack(translation, taken, alignment) {
  const words = splitAtSpaces(translation);
  const { marks } = taken;
  const [line, pairs] = treeOf(marks);
  line.high = words.length;
  for (const pair of [line, ...pairs]) placePairs(pair, words, taken, alignment);
  const tight = pairs.filter(({ low, high, opening }) => high > low || marks[opening].kind === "emphasis");
  const openings = new Set(tight.map(({ opening }) => opening));
  const closings = new Set(tight.map(({ closing }) => closing));

  // Write the words, and the marks between them.
  const parts = [];
  const append = (text) => parts.push({ text, mark: null, number: -1 }) - 1;
  let [isAfterOpening, isBeforeWord] = [true, false];
  let [lastWord, beside] = [-1, -1]; // the last part with words, and the word that all marks since were beside
  let gap = 0; // the first part since the last word
  let [end, behind] = ["", ""]; // how the last word ends, and what was behind the last mark in the source
  for (const [word, number] of inOrder(line, marks, alignment)) {
    if (number === null) {
      const needsSpace = !isAfterOpening && !(isBeforeWord && areJoined(behind, words[word]));
      if (!needsSpace && gap) separateWords(parts.slice(gap), openings, closings);
      [lastWord, beside] = [append((needsSpace ? " " : "") + words[word]), -1];
      isAfterOpening = isBeforeWord = false;
      gap = parts.length;
      end = lastOf(words[word].replace(TRAILING_PUNCTUATION, ""));
      continue;
    }
    const mark = marks[number];
    const [isOpening, isClosing] = [openings.has(number), closings.has(number)];
    const last = number > 0 ? marks[number - 1] : null;
    const followsMark = last !== null && parts.at(-1)?.mark === last && last.end === mark.start;
    const followsThing = followsMark && !isTag(last);
    let before;
    [before, behind] = signsBeside(mark, taken.words);
    const isGlued = mark.isGlued && (followsThing || OPENING.includes(end) || areJoined(before, end));
    const needsNoSpace = isClosing || isAfterOpening || (isGlued && (followsMark || !isOpening));

    // Punctuation of the last word goes behind the mark.
    let tail = "";
    if (![-1, mark.word].includes(beside)) lastWord = -1;
    if (mark.isBeforePunctuation && lastWord >= 0 && !isOpening) {
      const { text } = parts[lastWord];
      [tail] = text.match(TRAILING_PUNCTUATION);
      const rest = text.slice(0, text.length - tail.length).trimEnd();
      if (SPACED.includes(tail[0])) tail = text.slice(rest.length);
      parts[lastWord].text = rest;
    }
    append(needsNoSpace ? "" : " ");
    parts.push({ text: mark.text, mark, number });
    beside = mark.word;
    if (tail) {
      [lastWord, beside] = [append(tail), -1];
      gap = parts.length;
    }
    [isAfterOpening, isBeforeWord] = [isOpening, mark.isFollowed && !tail];
  }
  return parts.map(({ text }) => text).join("");
}

// The character of the source before a thing that is like a word, and a text that begins behind it; "" for other marks.
function signsBeside(mark, words) {
  if (isTag(mark) || (mark.kind === "thing" && OF_LAYOUT.test(mark.text))) return ["", ""];
  return [mark.signBefore, words[mark.word] ?? ""];
}

// The last character of a text, which may have two units.
function lastOf(text) {
  return Array.from(text.slice(-2)).at(-1) ?? "";
}

// Whether a thing has no space beside a character if it has none beside that of the source.
function areJoined(ofSource, ofTranslation) {
  return !UNSPACED_SIGN.test(ofSource) || UNSPACED_SIGN.test(ofTranslation);
}

// Adds a space to the parts since the last word, unless they have one, or a mark that joined words in the source. It is
// before the first opening tag, or else before the first mark that is no closing tag.
function separateWords(parts, openings, closings) {
  if (parts.some(({ text, mark }) => (mark ? mark.joinsWords : text === " "))) return;
  const opening = parts.findIndex(({ number }) => openings.has(number));
  const place = opening >= 0 ? opening : parts.findIndex(({ mark, number }) => mark && !closings.has(number));
  parts[place - 1].text = " ";
}

// The whole line, and all pairs of tags in it, each after the pair around it. Of a pair:
//   opening, closing   the numbers of its tags among the marks
//   pairs, things      what is directly within it
//   low, high          the words of the translation that it is around: the first, and the last + 1
function treeOf(marks) {
  const newPair = (opening, closing, depth) => ({ opening, closing, depth, pairs: [], things: [], low: 0, high: 0 });
  const line = newPair(-1, marks.length, 0);
  const pairs = [];
  const around = [line];
  marks.forEach(({ partner }, number) => {
    if (partner < 0) {
      around.at(-1).things.push(number);
    } else if (partner > number) {
      const pair = newPair(number, partner, around.length);
      around.at(-1).pairs.push(pair);
      pairs.push(pair);
      around.push(pair);
    } else {
      around.pop();
    }
  });
  return [line, pairs];
}

// [number of a word, null] for each word, and [place, number of a mark] for each mark, in order.
function* inOrder(line, marks, alignment) {
  // Where what is within a pair begins, in order. At one place, things come before pairs with words.
  const itemsOf = (pair) => {
    const things = pair.things.map((number) => {
      const place = placeOfThing(marks[number], alignment);
      return { place: Math.min(Math.max(place, pair.low), pair.high), isAroundWords: 0, number, inner: null };
    });
    const pairs = pair.pairs.map((inner) => {
      return { place: inner.low, isAroundWords: Number(inner.high > inner.low), number: inner.opening, inner };
    });
    const items = [...things, ...pairs];
    return items.sort((a, b) => a.place - b.place || a.isAroundWords - b.isAroundWords || a.number - b.number).values();
  };

  let word = 0;
  const open = [[line, itemsOf(line)]];
  while (open.length) {
    const [pair, rest] = open.at(-1);
    const { value: item } = rest.next();
    const { place, number, inner } = item ?? { place: pair.high, number: pair.closing, inner: null };
    for (; word < place; word++) yield [word, null];
    if (!item) open.pop();
    else if (inner) open.push([inner, itemsOf(inner)]);
    if (number < marks.length) yield [place, number];
  }
}

// How many words of the translation are before a mark that is no pair of tags.
function placeOfThing(mark, alignment) {
  const { nTarget, nSource } = alignment;
  if (mark.word >= nSource || !nTarget) return nTarget;
  if (mark.kind === "number") return alignment.best(mark.word); // it belongs to the word after it
  return alignment.border(mark.word) ?? Math.min(alignment.best(mark.word - 1) + 1, nTarget);
}

// Sets the words of each pair that is directly within another one, or within the line. A word goes to the pair from
// which most of it comes, if no more of it comes from words in no pair. A pair to which no word would go takes the one
// that comes most from it, if that is not the only one of another pair.
function placePairs(around, words, taken, alignment) {
  const { low, high, pairs, depth } = around;
  if (!pairs.length) return;
  if (depth >= DEEPEST) {
    pairs.forEach((pair, i) => {
      [pair.low, pair.high] = [i ? high : low, high];
    });
    return;
  }
  const wanted = pairs.map((pair) => sharesOf(pair, around, taken, alignment));
  const owners = new Array(high - low).fill(FREE);
  const largest = new Array(high - low).fill(0); // shares
  const rest = new Array(high - low).fill(1); // what comes from no pair
  wanted.forEach(([start, shares], i) => {
    shares.forEach((share, place) => {
      if (share > largest[start + place]) [owners[start + place], largest[start + place]] = [i, share];
      rest[start + place] -= share;
    });
  });
  rest.forEach((share, place) => {
    if (share > largest[place]) owners[place] = FREE;
  });
  const nOwned = new Array(pairs.length).fill(0);
  for (const owner of owners) if (owner !== FREE) nOwned[owner] += 1;
  wanted.forEach(([start, shares], i) => {
    if (nOwned[i] || !shares.some(Boolean)) return;
    const word = start + shares.indexOf(shares.reduce((a, b) => Math.max(a, b)));
    if (owners[word] !== FREE) {
      if (nOwned[owners[word]] < 2) return;
      nOwned[owners[word]] -= 1;
    }
    [owners[word], nOwned[i]] = [i, 1];
  });

  pairs.forEach((pair, i) => {
    const [start, shares] = wanted[i];
    const mark = taken.marks[pair.opening];
    const lastWord = taken.marks[pair.closing].word;
    if (nOwned[i]) {
      const gains = shares.map((share, place) => {
        return [i, FREE].includes(owners[start + place]) ? share - 0.5 : -Infinity;
      });
      [pair.low, pair.high] = bestRun(gains).map((place) => low + start + place);
      const isAtEnd = lastWord === taken.words.length;
      const isAlone = (word) => word.match(TRAILING_PUNCTUATION)[0] === word; // punctuation that stands alone
      while (pair.high - pair.low > 1 && !isAtEnd && isAlone(words[pair.high - 1])) pair.high -= 1;
    } else {
      // Nothing comes from it: it is around the word in its place, if that is no other pair's.
      const place = Math.min(Math.max(placeOfThing(mark, alignment), low), high);
      const isAroundWord = mark.word < lastWord && place < high && owners[place - low] === FREE;
      [pair.low, pair.high] = [place, place + Number(isAroundWord)];
    }
    owners.fill(i, pair.low - low, pair.high - low);
  });
}

// How much of words of the translation, within the pair around it, comes from those of a pair: the first of the words,
// counted from the first of the pair around it, and a share for it and each that follows.
function sharesOf(pair, around, { words, marks }, alignment) {
  const [start, end] = [marks[pair.opening].word, marks[pair.closing].word];
  if (start >= end) return [0, []];
  if (end - start === words.length) return [0, new Array(around.high - around.low).fill(1)];
  const [first, shares] = alignment.shares(start, end);
  const within = shares.slice(Math.max(0, around.low - first), Math.max(0, around.high - first));
  return [within.length ? Math.max(0, first - around.low) : 0, within];
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
