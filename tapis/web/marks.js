// What a translation carries over as it is: markup, links, addresses, placeholders, codes and pictographs, as
// tapis/text/marks.py. `takeOut` removes these marks from a line; placement.js puts them back into its translation.

// Tags of HTML that have no partner; <wbr> has none either, and may be within a word
const ALONE = /^(?:<|&lt;)(?:area|base|br|col|embed|hr|img|input|link|meta|source|track)(?![\p{L}\p{N}_])/iu;
const OTHER_FULL_STOPS = "。｡．۔।։።။។";
const SENTENCE_ENDS = `.${OTHER_FULL_STOPS}!?…！？؟`;
const PUNCTUATION = `${SENTENCE_ENDS},;:)]»”，、；：）」』》】،؛`; // that belongs to the word before it
const OF_PUNCTUATION = `[${PUNCTUATION.replace("]", "\\]")}]`;
const LEADING_PUNCTUATION = new RegExp(`^${OF_PUNCTUATION}+`, "u");
// What two things have between them: %d/%d. Full stops, commas and closing brackets of other scripts belong to the word
// before, but not 、 and ：, as in {a}、{b} and {h}：{m}.
const SIGNS = new RegExp(`^[^\\p{L}\\p{N}\\s${OTHER_FULL_STOPS}！？؟，；،؛）」』》】]*$`, "u");
// Around a thing: what opens, and what may close it
const BRACKETS = {
  __proto__: null, // a word may be called constructor
  "(": ")", "[": "]", "«": "»", "»": "«", "‹": "›", "›": "‹", '"': '"', "'": "'",
  "“": "”", "”": "”", "„": "“”", "‘": "’", "’": "’", "‚": "‘’",
  "（": "）", "「": "」", "『": "』", "《": "》", "【": "】",
};
const DASHES = ["-", "–", "—", "|"];

function isTag({ kind }) {
  return ["open", "close", "emphasis"].includes(kind);
}

// A line → its words, and its marks. Of a mark:
//   text, kind, start, end    what it is, and where it begins and ends in the line
//   word                      how many words are before it
//   isGlued, isFollowed       whether no space is before it, and whether a word follows without a space
//   signBefore                the last character of the word before it, without punctuation that follows the mark
//   isBeforePunctuation       whether punctuation follows that is not its own; this goes to the word before it
//   joinsWords                whether it is between two words without a space, alone or beside other marks
//   partner                   of a pair of tags, the number of the other one among the marks; -1 for anything else
function takeOut(line, withNumbers = false) {
  let reader = new MarkReader(line).read(withNumbers, new Set());
  // An asterisk that is no emphasis belongs to its word.
  const alone = reader.marks.filter(({ kind, partner }) => kind === "emphasis" && partner < 0);
  if (alone.length) reader = new MarkReader(line).read(withNumbers, new Set(alone.map(({ start }) => start)));
  const { words, marks } = reader;
  return { words, marks, text: words.join(" ") };
}

// Reads a line from left to right.
class MarkReader {
  constructor(line) {
    // Two characters as `repaired` reads them, lest they be spaces to Python or to JavaScript
    this.line = line.replaceAll("\u0085", "…").replaceAll("\ufeff", "\u2060");
    this.original = line;
    this.end = 0; // of what was read
    this.words = [];
    this.marks = [];
    this.firstThing = 0; // the number of the first of those that follow each other, up to the last mark
    this.isOpenWord = false; // whether text that follows without a space belongs to the last word
    this.unclosed = []; // tags that wait for their partners, by name and number
  }

  // skipped: the places of marks that are none.
  read(withNumbers, skipped) {
    for (const match of this.line.matchAll(withNumbers ? MARK_OR_NUMBER : MARK)) {
      const start = match.index;
      if (skipped.has(start) || start < this.end) continue;
      const mark = {
        text: this.original.slice(start, start + match[0].length),
        kind: ALONE.test(match[0]) ? "thing" : KINDS.find((kind) => match.groups[kind] !== undefined),
        word: 0,
        start,
        end: start + match[0].length,
        isGlued: start > 0 && !/\s/u.test(this.line[start - 1]),
        signBefore: "",
        isFollowed: false,
        isBeforePunctuation: false,
        joinsWords: false,
        partner: -1,
      };
      if (!isTag(mark)) this.addSigns(mark);
      this.addText(start);
      mark.word = this.words.length;
      mark.signBefore = lastOf(this.words.at(-1) ?? "");
      this.marks.push(mark);
      this.end = mark.end;
      if (isTag(mark)) this.addTag(mark);
      else this.addThing(mark);
    }
    this.addText(this.line.length);
    this.findJoints();
    return this;
  }

  // Sets which marks join words. Marks that follow each other do so together, as in <b>First</b><i>second</i>.
  findJoints() {
    const { marks, line } = this;
    let start = 0; // of the marks that follow each other
    marks.forEach((mark, number) => {
      if (number && marks[number - 1].end < mark.start) start = number;
      const isLast = number + 1 === marks.length || mark.end < marks[number + 1].start;
      const following = line.slice(mark.end, mark.end + 1);
      if (isLast && marks[start].isGlued && following.trim() && !PUNCTUATION.includes(following)) {
        for (let i = start; i <= number; i++) marks[i].joinsWords = true;
      }
    });
  }

  // Adds the signs between the last thing and a new one to the last one. In the translation, the two stay together.
  addSigns(mark) {
    const last = this.marks.at(-1);
    const signs = this.line.slice(this.end, mark.start);
    if (!last || isTag(last) || !SIGNS.test(signs)) {
      this.firstThing = this.marks.length;
      return;
    }
    last.text += signs;
    this.end = last.end = mark.start;
    if ([last.kind, mark.kind].includes("number")) mark.kind = last.kind;
  }

  // Reads words up to a place. Punctuation after something that was taken out goes to the word before that.
  addText(end) {
    const { words } = this;
    const last = words.length - 1;
    const mark = this.marks.at(-1);
    let text = this.line.slice(this.end, end);
    const isAfterThing = mark && mark.end === this.end && !isTag(mark);
    const punctuation = isAfterThing ? text.match(LEADING_PUNCTUATION)?.[0] : undefined;
    if (punctuation) {
      text = text.slice(punctuation.length);
      if (words.length && mark.word === words.length && !endsInPunctuation(words[last])) {
        words[last] += punctuation;
        mark.isBeforePunctuation = true;
      } else {
        mark.text += punctuation;
      }
    }
    const parts = splitAtSpaces(text);
    if (parts.length && this.isOpenWord && !/^\s/u.test(text)) words[last] += parts.shift();
    words.push(...parts);
    if (text) {
      this.isOpenWord = words.length > 0 && !/\s$/u.test(text);
      if (isAfterThing && !mark.isBeforePunctuation) mark.isFollowed = parts.length > 0 && !/^\s/u.test(text);
    }
  }

  // A dash before a thing, or brackets around it or around several, belong to it or to them.
  addThing(mark) {
    const { words, line } = this;
    const first = this.marks[this.firstThing];
    const following = line.startsWith("](", this.end) ? "" : line.slice(this.end, this.end + 1);
    const isAroundAll = words.length && first.isGlued && BRACKETS[words.at(-1)]?.includes(following);
    const isAroundLast = mark !== first && BRACKETS[line[mark.start - 1]]?.includes(following);
    if (words.length && !mark.isGlued && DASHES.includes(words.at(-1))) {
      mark.text = `${words.pop()} ${mark.text}`;
      mark.word -= 1;
    } else if (following && (isAroundAll || isAroundLast)) {
      mark.text += following;
      this.end += 1;
      mark.end = this.end;
      if (!isAroundLast) {
        first.text = `${words.pop()}${first.text}`;
        first.isGlued = false;
        for (const thing of this.marks.slice(this.firstThing)) thing.word -= 1;
      }
    }
    this.isOpenWord = false;
  }

  // An opening tag, a closing one, or emphasis, which opens and closes alike.
  addTag(mark) {
    const { words, marks, unclosed } = this;
    const name = nameOfTag(this.line.slice(mark.start, mark.end));
    const number = marks.length - 1;
    const isBeforeWord = /^[\p{L}\p{N}]/u.test(this.line.slice(this.end, this.end + 2));
    if (this.isOpenWord && isBeforeWord && SENTENCE_ENDS.includes(words.at(-1).at(-1))) {
      this.isOpenWord = false; // a sentence ends where the tag is
      mark.word = words.length;
    }
    const isUnclosed = () => unclosed.some(([other]) => other === name);
    if (mark.kind === "close" || (mark.kind === "emphasis" && isUnclosed())) {
      mark.isBeforePunctuation = words.length > 0 && !endsInPunctuation(words.at(-1));
      while (mark.partner < 0 && isUnclosed()) {
        const [otherName, other] = unclosed.pop(); // what does not match would cross this pair, and stays alone
        if (otherName === name) [mark.partner, marks[other].partner] = [other, number];
      }
    } else if (!["<wbr", "&wbr"].includes(name)) { // which may be within a word
      if (this.isOpenWord && isBeforeWord) { // within a word, as are opening tags directly before
        mark.word -= 1;
        for (let i = unclosed.length - 1; i >= 0; i--) {
          const outer = unclosed[i][1];
          if (marks[outer].end !== marks[outer + 1].start) break;
          marks[outer].word = mark.word;
        }
      }
      const before = marks[number - 1];
      if (before && isTag(before) && before.end === mark.start && before.partner >= 0) {
        this.isOpenWord = false; // </a><a> is between words, although there is no space
        mark.word = words.length;
      }
      unclosed.push([name, number]);
    }
  }
}

function splitAtSpaces(text) {
  return text.split(/\s+/u).filter(Boolean);
}

function endsInPunctuation(word) {
  return PUNCTUATION.includes(word.at(-1));
}

// What an opening and a closing tag have in common: their name, up to a class as in <c.yellow> of WebVTT.
function nameOfTag(tag) {
  const match = tag.match(/^(?:<|&lt;)\/?([^\s/>&.]+)/u) ?? tag.match(/^\[\/?([\p{L}\p{N}_]+)(?:=.+)?\]$/u);
  if (match) return match[0][0] + match[1].toLowerCase();
  return "![]".includes(tag[0]) ? "[" : tag;
}
