// What makes a translation doubtful, without knowing the right one, as tapis/doubts.py.

const UNSURE_BELOW = -2; // mean log P of a token, for runs that did not learn a limit
const TELEPHONE = /\+\p{Nd}{1,3}(?:[ \u00a0\u202f.-]\(?\p{Nd}{1,4}\)?){2,8}/gu;
const CURRENCY = /[$€£¥₹₩₽₺₴₪₫฿¢＄￥￡￠￦]/gu;

// A run of letters, in scripts that separate words by spaces. [\p{L}\p{Nl}\p{No}] is Python's [^\W\d_].
const UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}";
const SPACED_WORD = new RegExp(`(?:(?![${UNSPACED}])[\\p{L}\\p{Nl}\\p{No}])+`, "gu");

// The value of a decimal digit of any script. Blocks of ten digits, one or several, begin behind what is no digit.
function digitValue(character) {
  let nBefore = 0;
  const code = character.codePointAt(0);
  while (/\p{Nd}/u.test(String.fromCodePoint(code - nBefore - 1))) nBefore += 1;
  return nBefore % 10;
}

// The numbers of two digits or more in a text, by their digits and sorted, however the language writes them; and signs
// of currency, whatever their width. A telephone number is one, a range is two, and so may be a date.
function numbersOf(text) {
  const joined = text.replace(TELEPHONE, (number) => number.match(/\p{Nd}/gu).join(""));
  const parts = (joined.match(NUMBER) ?? []).flatMap((number) => number.split(/[\u2010-\u2013-]/u));
  const found = parts.map((part) => part.match(/\p{Nd}/gu) ?? []).filter((digits) => digits.length > 1);
  const numbers = found.map((digits) => digits.map(digitValue).join(""));
  const signs = (text.match(CURRENCY) ?? []).map((sign) => sign.normalize("NFKC"));
  return [...numbers, ...signs].sort();
}

// Whether a translation has the numbers of a line.
function hasNumbersOf(line, translation) {
  return numbersOf(line).join(" ") === numbersOf(translation).join(" ");
}

// The words of a text as they are written.
function wordsOf(text) {
  return text.match(SPACED_WORD) ?? [];
}

// The words that a model knows, from the config of its page.
function knownWords({ target_words: words }) {
  return new Set(words ? words.split(" ") : []);
}

// How unusual a length is: −1 is as short, and 1 as long, as one in a hundred training pairs; 0 if unknown.
function deviation(nSource, nTarget, { length_ratio: ratio, length_spread: spread }) {
  if (!ratio) return 0;
  return (nTarget - ratio * nSource) / (Math.max(spread, 1e-6) * Math.sqrt(nSource));
}

// The doubts about a translation, in the order of the table in doubts.py. nSource and nTarget are tokens, and
// meanLogP is log P of the translation for each of its tokens and its end.
function doubtsAbout(source, translation, { nSource, nTarget, meanLogP, config, known }) {
  const unusual = deviation(nSource, nTarget, config);
  const ofSource = wordsOf(source);
  const lowered = ofSource.map((word) => word.toLowerCase());
  const isUnknown = (word) => known.size > 0 && !known.has(word);
  const unknown = wordsOf(translation).map((word) => word.toLowerCase()).filter(isUnknown);
  const doubts = {
    loop: loops(source, translation),
    short: unusual < -1,
    long: unusual > 1,
    numbers: !hasNumbersOf(source, translation),
    copied: unknown.some((word) => ofSource.includes(word)),
    invented: unknown.some((word) => !lowered.includes(word)),
    unsure: meanLogP < (config.unsure_below || UNSURE_BELOW),
  };
  return Object.keys(doubts).filter((doubt) => doubts[doubt]);
}
