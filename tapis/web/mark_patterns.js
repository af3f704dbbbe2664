// The patterns of marks, as tapis/text/mark_patterns.py: markup, links, placeholders, codes, pictographs, numbers.
//
// \w, \d and their negations are written out, since JavaScript's have ASCII alone. Python's patterns with possessive
// quantifiers are written with others that match the same, and `atomic` where giving back would change what matches.

const W = "\\p{L}\\p{N}_"; // within brackets, what \w matches in Python
const D = "\\p{Nd}";
// Letters that may be directly beside a mark: of scripts without spaces between words, and of Korean
const BESIDE_MARKS =
  "\\u0e00-\\u109f\\u1780-\\u17ff\\u1100-\\u11ff\\uac00-\\ud7ff\\u2e80-\\ua4cf\\uf900-\\ufaff\\uff66-\\uffdc" +
  "\\u{20000}-\\u{3ffff}";
const STARTS = `(?<!(?![${BESIDE_MARKS}])[${W}])`;
const ENDS = `(?!(?![${BESIDE_MARKS}])[${W}])`;
// Some of any other letters, digits, underscores, and of more signs
function spaced(signs = "") {
  return `(?:(?![${BESIDE_MARKS}])[${W}${signs}])`;
}

// What a pattern matches at first, and nothing shorter.
let nAtomic = 0;
function atomic(pattern) {
  nAtomic += 1;
  return `(?=(?<atomic${nAtomic}>${pattern}))\\k<atomic${nAtomic}>`;
}

const NUMBER_SEPARATOR =
  "(?:[.,:/\\u066b\\u066c\\u00a0\\u2009\\u202f\\u2010-\\u2013\\-]" +
  `|(?<=(?<!${D}|${D}[.,:/\\u066b\\u066c])${D}{1,3})[ '’](?=${D}{3}(?!${D}))` + // the groups of 1 000
  `|[ '’](?=000(?!${D})))`;
const NUMBER_PATTERN = `${D}(?:${NUMBER_SEPARATOR}?${D})+`;
const NUMBER = new RegExp(NUMBER_PATTERN, "gu");
const KEYCAP = "\\ufe0f?\\u20e3"; // the end of a keycap, such as 1️⃣
// Some pictographs are signs of text unless U+FE0F follows.
const PICTOGRAPH =
  "(?:(?:[\\u231a\\u231b\\u23e9-\\u23fa\\u25b6\\u25c0\\u25fd\\u25fe\\u2600-\\u27bf\\u2b00-\\u2bff]|" +
  "[\\u{1f000}-\\u{1faff}]|" +
  "[©®\\u203c\\u2049\\u2122\\u2139\\u2194-\\u2199\\u21a9\\u21aa\\u2328\\u23cf\\u24c2\\u25aa\\u25ab](?=\\ufe0f)|" +
  "[\\u25fb\\u25fc\\u2934\\u2935\\u3030\\u303d\\u3297\\u3299](?=\\ufe0f)|" +
  `[0-9#*](?=${KEYCAP}))` +
  "[\\ufe0f\\u200d\\u20e3\\u{1f3fb}-\\u{1f3ff}\\u{e0020}-\\u{e007f}]*)+";
const EDGE = `${STARTS}(?<![@#$%&./:\\-])`; // where something of its own can begin
// Where a link can begin that has such letters itself: in a text with spaces
const STARTS_BEHIND_SPACE = `(?<![${BESIDE_MARKS}\\uff01-\\uff65]\\s)(?<![^\\s(])`;
const OF_LINK = "[^\\s<>\"«»()\\[\\]*\\u3000-\\u303f\\uff01-\\uff65]";

// A placeholder of i18next: __name__. A text of the page is not taken for Markdown's bold text of one word.
const UNDERSCORED = `${STARTS}__[A-Za-z0-9](?:[${W}]{0,100}[A-Za-z0-9])?__${ENDS}`;

// A pattern of text with braces in pairs, so deep within each other.
function balanced(depth) {
  let inner = atomic("[^\\{\\}]{0,500}");
  for (let i = 0; i < depth; i++) inner = atomic(`(?:${atomic("[^\\{\\}]{1,500}")}|\\{${inner}\\}){0,1000}`);
  return inner;
}

// What formats an argument of a message: {n, number}, {day, date, short}
const FORMATS = "number|date|time|spellout|ordinal|duration|list";
// How a placeholder of printf ends: in C, Go, Python, Objective-C
const CONVERSION = `(?:hh|h|ll|l|L|q|j|z|t|I64|I32)?[diouxXeEfFgGaAcCsSpn@vqTtU]${ENDS}`;

const PLACEHOLDERS = [
  "\\{\\\\[^\\{\\}]*\\}", // of subtitles: {\an8}
  // a message of ICU
  `\\{\\s{0,50}[${W}]{1,100}\\s{0,50},\\s{0,50}(?:plural|select|selectordinal)\\s{0,50},${balanced(4)}\\}`,
  `\\{\\s?[${W}]{1,100}\\s?,\\s?(?:${FORMATS})\\s?(?:,${balanced(1)})?\\}`,
  "\\{\\{\\{?[^\\{\\}\\n]{0,1000}\\}\\}\\}?|\\{%[^\\{\\}%\\n]{0,1000}%\\}", // of templates
  "<%[^<>%\\n]{0,1000}%>|<\\?[^<>?\\n]{0,1000}\\?>",
  `\\[\\[[^\\[\\]\\n]{1,100}\\]\\]|@@[${W}]{1,100}@@`,
  "[%#$@]\\{[^\\{\\}\\n]{1,100}\\}", // %{name}, #{x + 1}, ${x}
  `\\{ ?[${W}.:$\\[\\]!@,+#<>\\-]{0,100} ?\\}`, // {0}, {user.name!r:>10}, { $count }
  "(?<!\\S)#(?!\\S)", // the number of a message
  // of printf
  `%(?:\\([${W}]{1,100}\\)|${D}{1,3}\\$)?[\\-+#0']{0,5}(?:${D}{1,4}|\\*)?(?:\\.(?:${D}{1,4}|\\*))?` +
    `${CONVERSION}|%%`,
  `%[\\-+#0']{0,5}${D}{0,4}(?:\\.${D}{1,4})?<PRI[${W}]{1,20}>`, // of C, in gettext
  // of Ruby
  `(?<!${D})(?<!${D}[ \\u00a0\\u202f])%<[${W}]{1,100}>[\\-+#0']{0,5}${D}{0,4}(?:\\.${D}{1,4})?${CONVERSION}`,
  `${STARTS}(?<!%)%[A-Za-z_][${W}.]{0,100}%${ENDS}`, // %name%
  `${STARTS}(?<!%)%L?${atomic(`${D}{1,2}`)}${ENDS}(?!%)`, // of Qt
  `\\$t\\([^\\(\\)\\n]{1,100}\\)|${STARTS}@:(?:${spaced(".")}{1,100}|\\([^\\(\\)\\n]{1,100}\\))`, // other messages
  `${STARTS}(?<![:/]):[a-z]${atomic(`[${W}]{0,50}`)}:${ENDS}(?!/)`, // :smile:
  `</?${D}{1,3}\\s?/?>`, // <1/>, and others without a partner
  // paths of Windows
  `(?<![${W}])[A-Za-z]:\\\\[^\\s<>"]+|(?<![${W}\\\\])${atomic("\\\\\\\\[^\\s<>\"\\\\]+\\\\[^\\s<>\"]*")}`,
  "\\\\[nrt]", // the end of a line, or a tab, written out
  `${EDGE}\\$[A-Za-z_]${spaced()}*`,
];

const THINGS = [
  // A link does not end in punctuation, has parentheses in pairs, and does not go on where one of Markdown ends. It
  // has letters of scripts without spaces only between spaces: otherwise these are of the text behind it.
  `${STARTS_BEHIND_SPACE}(?:https?://|ftp://|www\\.)${OF_LINK}+(?:\\(${OF_LINK}*\\)${OF_LINK}*)*` +
    "(?<![.,;:!?'_])(?=[.,;:!?)\"']*(?:\\s|$))",
  `${EDGE}(?:https?://|ftp://|www\\.)` +
    `(?:[^\\s<>"«»()\\]\\uff01-\\uff65${BESIDE_MARKS}]|\\](?![\\(\\[])|\\([^\\s<>"«»()]*\\))*` +
    `(?:[^\\s<>"«».,;:!?'()\\[\\]*_\\uff01-\\uff65${BESIDE_MARKS}]|\\([^\\s<>"«»()]*\\))`,
  `${STARTS}(?<![.+\\-])${spaced(".+\\-")}+@${spaced("\\-")}+(?:\\.${spaced("\\-")}+)+`,
  ...PLACEHOLDERS,
  `&(?:[${W}]+|#[${W}]+);`, // entities of HTML
  `${EDGE}@${spaced()}+|(?<![${W}])${EDGE}[#@][${W}]+`,
  `${EDGE}${atomic(`v${D}+(?:\\.${D}+)*`)}${ENDS}`, // versions
  // codes
  `${EDGE}(?=[A-Za-z0-9_\\-]{0,40}${D})(?=[A-Za-z0-9_\\-]{0,40}[A-Z])` +
    `${atomic("[A-Za-z0-9]+(?:[\\-_][A-Za-z0-9]+)*")}${ENDS}`,
  PICTOGRAPH,
];
// Of Markdown: code between one, two or three signs, and footnotes
const CODE = [1, 2, 3]
  .map((n) => `(?<!\`)\`{${n}}(?!\`)${atomic(`(?:[^\`\\n]|(?<!\`)(?!\`{${n}}(?!\`))\`+)+`)}\`{${n}}(?!\`)`)
  .join("|");
const FOOTNOTE = `\\[\\^[${W}\\-]+\\]`;
// Where a link of Markdown leads: (address), (address "title") or [reference]
const TARGET = () =>
  `(?:\\((?:<[^<>\\n]*>|${atomic("(?:[^\\(\\)\\s]|\\([^\\(\\)\\s]*\\))*")})` +
  "(?:[ ](?:\"[^\"\\n]*\"|'[^'\\n]*'))?\\)|\\[[^\\[\\]\\n]+\\])";

// A pattern of the text of a link, with brackets in pairs so deep within each other, such as images.
function linkText(depth) {
  const other = "\\\\.|[^\\[\\]\\\\\\n]";
  let inner = atomic(`(?:${other})*`);
  for (let i = 0; i < depth; i++) inner = atomic(`(?:${other}|\\[${inner}\\])*`);
  return inner;
}

const ATTRIBUTES = "(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*";
// The rest of an escaped tag. Without values, it may be text: &lt;your name&gt;
const escapedQuoted = () =>
  ["&quot;", "&#34;", "&#39;", "&apos;"]
    .map((quote) => `${quote}${atomic(`(?:[^<>&]|&(?!lt;|gt;|${quote.slice(1)})){0,500}`)}${quote}`)
    .join("|");
const escapedValue = () => `(?:"[^"<>]{0,500}"|'[^'<>]{0,500}'|${escapedQuoted()}|[^\\s<>&"']{1,500})`;
const escapedName = () => `${atomic("\\s{1,9}")}${atomic(`[${W}:\\-]{1,50}`)}`;
function inEscapedTag() {
  const others = atomic(`(?:${escapedName()}(?:\\s?=\\s?${escapedValue()})?){0,20}`);
  const attributes = atomic(`(?:${escapedName()}\\s?=\\s?${escapedValue()}${others})?`);
  return `${atomic(`[${W}:\\-]{0,30}`)}${attributes}\\s?`;
}
const NAMES_OF_BBCODE = "b|i|u|s|url|img|quote|code|size|color|font|center|list|spoiler";
const OPENING_TAG =
  `<[A-Za-z]${ATTRIBUTES}(?<!/)>|<${D}{1,3}>` + // <0> is of translations of React
  `|(?<!&lt;)&lt;[A-Za-z]${inEscapedTag()}&gt;` + // of a page within XML or a page
  `|\\[(?<bbcode>${NAMES_OF_BBCODE})(?:=[^\\[\\]\\n]{1,200})?\\](?!\\()(?=[^\\n]{0,500}?\\[/\\k<bbcode>\\])`;
const CLOSING_TAG =
  `</[A-Za-z][^<>]*>|</${D}{1,3}>|&lt;/[A-Za-z]${inEscapedTag()}&gt;|\\[/(?:${NAMES_OF_BBCODE})\\]`;
// Elements that are kept whole, in letters of either case
const KEPT = ["code", "kbd", "samp", "var", "sub", "sup"]
  .map((name) => Array.from(name, (letter) => `[${letter}${letter.toUpperCase()}]`).join(""))
  .map((name) => `<${name}(?![${W}])${ATTRIBUTES}(?<!/)>(?:[^<]|<(?!/?${name}(?![${W}])))*</${name}>`)
  .join("|");
// No script of the page may have the sign with which a comment of HTML begins.
// A comment is read as far as it ends or another one begins.
const COMMENT = "<!-{2}(?:[^<\\-]|-(?!->)|<(?!!-{2}))*-->";
const OTHER_TAG = `<[A-Za-z]${ATTRIBUTES}(?<=/)>|${COMMENT}|(?<!&lt;)&lt;[A-Za-z]${inEscapedTag()}/&gt;`;
// Emphasis of Markdown, not within a word: 2*3, snake_case. Other signs may be beside it: **_so_**
const EMPHASIS = () => `${atomic("(?:\\*{1,3}|_{1,3}|~~)")}(?!${KEYCAP})`;
const MARK_PATTERN =
  `(?<kept>${KEPT})|(?<open>${OPENING_TAG}|!?\\[(?!/(?:${NAMES_OF_BBCODE})\\])(?=${linkText(2)}\\]${TARGET()}))` +
  `|(?<close>${CLOSING_TAG}|\\]${TARGET()})` +
  `|(?<emphasis>(?<![${W}])(?!${UNDERSCORED})${EMPHASIS()}(?=[*_~]{0,9}[^\\s*_~])` +
  `|(?<=\\S)${EMPHASIS()}(?![*_~]{0,9}[${W}]))` +
  `|(?<thing>${OTHER_TAG}|${UNDERSCORED}|${CODE}|${FOOTNOTE}|${THINGS.join("|")})`;
const MARK = new RegExp(MARK_PATTERN, "gu");
// An amount of money or a measure, which may have one digit; a telephone number; any number of two digits or more
const CURRENCIES = "$€£¥₹₩₽₺₴₪₫฿¢＄￥￡￠￦";
const digits = () => atomic(`${D}(?:${NUMBER_SEPARATOR}?${D})*`);
const TELEPHONE_PATTERN = `\\+${D}{1,3}(?:[ \\u00a0\\u202f.\\-]\\(?${D}{1,4}\\)?){2,8}`;
const MARK_OR_NUMBER = new RegExp(
  `${MARK_PATTERN}|(?<number>${STARTS}(?:${TELEPHONE_PATTERN}|[~≈≥≤±×<>=]?[\\-+]?` +
    `(?:[${CURRENCIES}][ \\u00a0\\u2009\\u202f]?${digits()}|` +
    `${digits()}[ \\u00a0\\u2009\\u202f]?[${CURRENCIES}%‰°][CFK]?${ENDS}|${NUMBER_PATTERN})${spaced("%°")}*))`,
  "gu",
);
const KINDS = ["kept", "open", "close", "emphasis", "thing", "number"];
