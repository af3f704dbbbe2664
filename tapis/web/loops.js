// Translations that repeat themselves, as tapis/text/loops.py.

// Two characters or more, three times in a row: parts of words, words, or several words.
const LOOP = /(.{2,80}?)\1{2,}/gu;

// A loop of three characters or more has six characters in a row twice; one of two characters is found at once.
const PROBE = 6;
const SHORT_LOOP = /(..)\1\1/u;

// One word to four, twice in a row or more often. Words have the marks of their letters.
const WORDS = "[\\p{L}\\p{M}\\p{N}_]+(?:[^\\p{L}\\p{M}\\p{N}_]+[\\p{L}\\p{M}\\p{N}_]+){0,3}?";
const EDGE_BEFORE = "(?<![\\p{L}\\p{M}\\p{N}_])";
const EDGE_AFTER = "(?![\\p{L}\\p{M}\\p{N}_])";
const REPETITION = new RegExp(`${EDGE_BEFORE}(${WORDS})(?:[^\\p{L}\\p{M}\\p{N}_]+\\1${EDGE_AFTER})+`, "gu");

// Whether a translation repeats itself at least two times more than its source does.
function loops(source, translation) {
  const times = timesInLoops(translation);
  return times > 0 && times > 1 + Math.max(timesInLoops(source), timesRepeated(source));
}

// The translation with what is repeated once.
function withoutLoops(translation) {
  return ` ${translation}`.replace(LOOP, (all, once) => (isLoop(once) ? once : all)).trim();
}

// How often the same words follow each other, at most; 0 where none do.
function timesRepeated(text) {
  return Math.max(0, ...Array.from(text.matchAll(REPETITION), ([all, once]) => all.split(once).length - 1));
}

// How often its loops say the same, at most; 0 without a loop.
function timesInLoops(text) {
  text = ` ${text}`;
  // Most texts have no loop, which is seen sooner than the search ends.
  const probes = new Set();
  const nProbes = text.length - PROBE + 1;
  for (let i = 0; i < nProbes; i++) probes.add(text.slice(i, i + PROBE));
  if (probes.size >= nProbes && !SHORT_LOOP.test(text)) return 0;
  const found = Array.from(text.matchAll(LOOP)).filter(([, once]) => isLoop(once));
  return Math.max(0, ...found.map(([all, once]) => all.length / once.length));
}

function isLoop(repeated) {
  return /\p{L}/u.test(repeated);
}
