// Sentences typed in capitals, or With A Capital Before Each Word, in usual letter case, as tapis/text/letter_case.py.

const CASED_WORD = /[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*/gu;
const MIN_CAPITALS = 6; // letters of a text in capitals that is more than an abbreviation or two
const MIN_WORDS = 4; // of a text in title case
const MIN_SHARE = 0.8; // of its words that begin with a capital; of the letters of a text in capitals that are capitals
const ORDINALS = /[ªº]/g; // which texts in capitals have: Nº 3

function isInCapitals(text) {
  if (/[\p{Ll}\p{Lt}]/u.test(text)) return false;
  const letters = text.replace(ORDINALS, "").match(/\p{L}/gu) ?? [];
  const capitals = text.match(/\p{Lu}/gu) ?? [];
  return capitals.length >= Math.max(MIN_CAPITALS, MIN_SHARE * letters.length);
}

function isInTitleCase(text) {
  const words = text.match(CASED_WORD) ?? [];
  return words.length >= MIN_WORDS && words.filter((word) => /^\p{Lu}/u.test(word)).length >= MIN_SHARE * words.length;
}

// The locale whose letter case a language has. Turkish and Azeri have two letters i and ı, in capitals İ and I.
function localeOfCase(language) {
  return ["tr", "az"].includes(locale(language)) ? "tr" : "en";
}

function capitalized(word, language) {
  const [first] = word;
  return first.toLocaleUpperCase(localeOfCase(language)) + word.slice(first.length);
}

function isTitle(word) {
  return word.replace(/\p{M}/gu, "").split(/['’]/).every((part) => /^\p{Lu}\P{Lu}*$/u.test(part));
}

// The text in usual letter case; unchanged unless it is in capitals or in title case.
function usualCase(text, tokenizer, language) {
  if (!isInCapitals(text) && !isInTitleCase(text)) return text;
  let isFirst = true;
  return text.replace(CASED_WORD, (word) => {
    const lower = word.toLocaleLowerCase(localeOfCase(language));
    // Of spellings that are one token, the one that was learned first is more frequent. A word of several tokens is no
    // usual one, perhaps a name: between equally many, it keeps its first capital.
    const ranks = Array.from(new Set([lower, capitalized(lower, language), word]), (spelling) => {
      const ids = tokenizer.encode(spelling);
      return { spelling, length: ids.length, second: ids.length === 1 ? ids[0] : Number(!isTitle(spelling)) };
    });
    const { spelling } = ranks.reduce((a, b) => (b.length - a.length || b.second - a.second) < 0 ? b : a);
    const result = isFirst ? capitalized(spelling, language) : spelling;
    isFirst = false;
    return result;
  });
}
