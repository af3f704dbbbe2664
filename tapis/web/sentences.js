// Lines of text ↔ the sentences that a model can translate, as tapis/text/sentences.py.

// Bullets, numbers, and the dash of a speaker, which has a space behind it or none
const MARKER =
  /^\s*(?:(?:[-*•·>#]+|\(?(?:(?:\p{Nd}{1,3}|[a-z])[.)]|[A-Z]\)))\s+)*(?:(?<!\S)-(?=\p{L}))?/u;
const INITIAL = /^[^\p{L}\p{N}_]*(?:\p{Uppercase}|\p{Nd}+)\.\s*$/u; // "M. Dupont" is not two sentences
const SENTENCE = /[^.!?。！？]*[.!?。！？]*\s*/gu; // where the browser has no Intl.Segmenter
// Where a long sentence may be cut, best first: beside punctuation within a sentence, then at whitespace.
const CUT_POINTS = [/(?<=[,;:،؛、；，：])\s*|\s+(?=[–—])/gu, /\s+/gu];
const LANGUAGES_WITHOUT_SPACES = ["zh", "ja"];

function normalizeSpaces(text) {
  return text.split(/\s+/u).filter(Boolean).join(" ");
}

// Whether a unit needs translation. Units of digits and symbols alone are copied.
function hasLetters(unit) {
  return /\p{L}/u.test(unit);
}

// The line as `repair` in tapis/text/languages.py writes it: in NFC, without control and invisible characters, with at most
// thirty combining marks in a row, and with the characters that Windows-1252 has at the places of control characters.
const REPAIRED =
  /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffd]/g;
const WINDOWS = new TextDecoder("windows-1252");
function repaired(line) {
  const replaced = line.replace(REPAIRED, (character) => {
    const code = character.charCodeAt(0);
    if (code >= 0x1c && code < 0x20) return " ";
    const other = code >= 0x80 && code < 0xa0 ? WINDOWS.decode(Uint8Array.of(code)) : "";
    return other === character ? "" : other;
  });
  return normalizeSpaces(replaced.replace(/(\p{M}{30})\p{M}+/gu, "$1").normalize("NFC"));
}

// The directional characters at the start of a line, the text between, and those at its end. Openings are kept if the end
// of the line closes as many; otherwise only marks are.
const DIRECTION = "\\u200e\\u200f\\u061c\\u202a-\\u202e\\u2066-\\u2069";
const STARTING_DIRECTION = new RegExp(`^[${DIRECTION}]+`);
const DIRECTIONAL = new RegExp(`[${DIRECTION}]`);
function takeDirection(line) {
  const whole = line.trim();
  const before = whole.match(STARTING_DIRECTION)?.[0] ?? "";
  let end = whole.length;
  while (end > before.length && DIRECTIONAL.test(whole[end - 1])) end -= 1;
  const after = whole.slice(end);
  const count = (text, characters) => (text.match(characters) ?? []).length;
  const isClosed =
    count(before, /[\u202a\u202b\u202d\u202e]/g) === count(after, /\u202c/g) &&
    count(before, /[\u2066-\u2068]/g) === count(after, /\u2069/g);
  const kept = (run) => (isClosed ? run : run.replace(/[^\u200e\u200f\u061c]/g, ""));
  return { before: kept(before), text: whole.slice(before.length, end), after: kept(after) };
}

// The code of a language without its region or script.
function baseLanguage(code) {
  return code.split(/[-_]/)[0].toLowerCase();
}

// A language as the browser names it; undefined, which stands for the browser's own, if it has none.
function locale(language) {
  if (!language) return undefined;
  try {
    return Intl.getCanonicalLocales(baseLanguage(language))[0];
  } catch {
    return undefined;
  }
}

function segments(text, language) {
  if (!globalThis.Intl?.Segmenter) return text.match(SENTENCE).filter(Boolean);
  const segmenter = new Intl.Segmenter(locale(language), { granularity: "sentence" });
  return Array.from(segmenter.segment(text), ({ segment }) => segment);
}

// A line → its list marker and its units: sentences, or pieces of long ones. fits tells what is short enough.
function splitLine(line, language, fits) {
  const marker = line.match(MARKER)[0];
  const rest = line.slice(marker.length);
  const sentences = [];
  for (const segment of segments(rest, language)) {
    const last = sentences.length - 1;
    if (last >= 0 && INITIAL.test(sentences[last])) sentences[last] += segment;
    else sentences.push(segment);
  }
  const pieces = sentences.flatMap((sentence) => (hasLetters(sentence) ? cutToFit(sentence, fits) : [sentence]));
  return { marker, units: pieces.map(normalizeSpaces).filter(Boolean) };
}

// Cut a text by halving, at the cut point nearest to the middle, until its pieces fit.
function cutToFit(text, fits) {
  if (text.length < 2 || fits(text)) return [text];
  const middle = Math.floor(text.length / 2);
  let cut = middle;
  if (/[\uDC00-\uDFFF]/.test(text[cut])) cut -= 1; // not within a character of two units
  if (cut === 0) return [text];
  for (const pattern of CUT_POINTS) {
    const ends = Array.from(text.matchAll(pattern), (match) => match.index + match[0].length);
    const candidates = ends.filter((end) => end > 0 && end < text.length);
    if (candidates.length) {
      cut = candidates.reduce((a, b) => (Math.abs(b - middle) < Math.abs(a - middle) ? b : a));
      break;
    }
  }
  return [...cutToFit(text.slice(0, cut), fits), ...cutToFit(text.slice(cut), fits)];
}

// Whether the first sentence follows the marker without a space, as in -Is it raining?
function isGlued(marker) {
  return /\S$/u.test(marker);
}

// The translated line, from the translation of each unit.
function joinLine(marker, translations, language) {
  const separator = LANGUAGES_WITHOUT_SPACES.includes(baseLanguage(language)) ? "" : " ";
  const body = translations.filter(Boolean).join(separator);
  const words = [...marker.split(/\s+/u), body].filter(Boolean);
  if (isGlued(marker)) words.push(words.splice(-2).join(""));
  return words.join(" ");
}
