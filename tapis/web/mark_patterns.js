// The patterns of marks, as tapis/text/mark_patterns.py: markup, links, placeholders, codes, pictographs, numbers.
//
// \w, \d and their negations are written out, since JavaScript's have ASCII alone. Python's patterns with possessive
// quantifiers are written with others that match the same, and `atomic` where giving back would change what matches.

const W = "\\p{L}\\p{N}_"; // within brackets, what \w matches in Python
const D = "\\p{Nd}";

// What a pattern matches at first, and nothing shorter.
let nAtomic = 0;
function atomic(pattern) {
  nAtomic += 1;
  return `(?=(?<atomic${nAtomic}>${pattern}))\\k<atomic${nAtomic}>`;
}

const NUMBER_PATTERN = `${D}(?:[.,:/\\u00a0\\u202f-]?${D})+`;
const PICTOGRAPH =
  "(?:[\\u231a\\u231b\\u23e9-\\u23fa\\u25b6\\u25c0\\u2600-\\u27bf\\u2b00-\\u2bff\\u{1f000}-\\u{1faff}]" +
  "[\\ufe0f\\u200d\\u{1f3fb}-\\u{1f3ff}\\u{e0020}-\\u{e007f}]*)+";
const EDGE = `(?<![${W}@#$%&./:\\-])`; // where something of its own can begin

const THINGS = [
  "`[^`\\n]+`", // code in Markdown
  // A link does not end in punctuation, and has brackets in pairs.
  `${EDGE}(?:https?://|ftp://|www\\.)(?:[^\\s<>"«»()]|\\([^\\s<>"«»()]*\\))*` +
    "(?:[^\\s<>\"«».,;:!?'()\\[\\]*_]|\\([^\\s<>\"«»()]*\\))",
  `(?<![${W}.+\\-])[${W}.+\\-]+@[${W}\\-]+(?:\\.[${W}\\-]+)+`,
  // placeholders
  `\\{\\\\[^\\{\\}]*\\}|%\\([${W}]+\\)[a-z]|%${D}*\\$?[sdif](?![${W}])|\\$?\\{\\{?[${W}.:]*\\}?\\}|` +
    `${EDGE}\\$[A-Za-z_][${W}]*`,
  `&(?:[${W}]+|#[${W}]+);`, // entities of HTML
  `\\[\\^[${W}\\-]+\\]`, // footnotes of Markdown
  `${EDGE}[#@][${W}]+`,
  `${EDGE}${atomic(`v${D}+(?:\\.${D}+)*`)}(?![${W}])`, // versions
  // codes
  `${EDGE}(?=[${W}\\-]{0,40}${D})(?=[${W}\\-]{0,40}[A-Z])` +
    `${atomic("[A-Za-z0-9]+(?:[\\-_][A-Za-z0-9]+)*")}(?![${W}])`,
  PICTOGRAPH,
];
// Where a link of Markdown leads: (address), (address "title") or [reference]
const TARGET = '(?:\\([^\\(\\)\\s]+(?:[ ]"[^"\\n]*")?\\)|\\[[^\\[\\]\\n]+\\])';
const ATTRIBUTES = "(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*";
const OPENING_TAG = `<[A-Za-z]${ATTRIBUTES}(?<!/)>`;
const CLOSING_TAG = "</[A-Za-z][^<>]*>";
// Elements that are kept whole, in letters of either case
const KEPT = ["code", "kbd", "samp", "var", "sub", "sup"]
  .map((name) => Array.from(name, (letter) => `[${letter}${letter.toUpperCase()}]`).join(""))
  .map((name) => `<${name}(?![${W}])${ATTRIBUTES}>(?:[^<]|<(?!/?${name}(?![${W}]))){0,1000}</${name}>`)
  .join("|");
// No script of the page may have the sign with which a comment of HTML begins.
const OTHER_TAG = `<[A-Za-z]${ATTRIBUTES}(?<=/)>|<!-{2}[^<>]*>`;
const EMPHASIS = "(?:\\*\\*|~~|__|\\*|_)"; // not within a word: 2*3, snake_case
const MARK_PATTERN =
  `(?<kept>${KEPT})|(?<open>${OPENING_TAG}|!?\\[(?=[^\\[\\]\\n]+\\]${TARGET}))` +
  `|(?<close>${CLOSING_TAG}|\\]${TARGET})` +
  `|(?<emphasis>(?<![${W}*~])${EMPHASIS}(?!\\s)|(?<=\\S)${EMPHASIS}(?![${W}*~]))` +
  `|(?<thing>${OTHER_TAG}|${THINGS.join("|")})`;
const MARK = new RegExp(MARK_PATTERN, "gu");
const MARK_OR_NUMBER = new RegExp(
  `${MARK_PATTERN}|(?<number>(?<![${W}])[\\-+]?[$€£¥]?${NUMBER_PATTERN}[${W}%°]*)`,
  "gu",
);
const KINDS = ["kept", "open", "close", "emphasis", "thing", "number"];
