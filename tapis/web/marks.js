// What a model should not see, such as emoji, links and tags: taken out of a sentence, and put back at its ends.
//
// tapis/text/marks.py also puts back what is within a sentence, by the attention of the model. Here it is left out, and the
// page says so (notices.js).

const PICTOGRAPH =
  "(?:[\\u231a\\u231b\\u23e9-\\u23fa\\u25b6\\u25c0\\u2600-\\u27bf\\u2b00-\\u2bff\\u{1f000}-\\u{1faff}]" +
  "[\\ufe0e\\ufe0f\\u200d\\u{1f3fb}-\\u{1f3ff}\\u{e0020}-\\u{e007f}]*)+";
const TAG = "</?[A-Za-z][^<>]*>";
const LINK = "(?:https?://|www\\.)[^\\s<>]*[^\\s<>.,;:!?…)\\]»”]|[\\w.+-]+@[\\w-]+(?:\\.[\\w-]+)+";
const MARKS = `(?:${PICTOGRAPH}|${TAG}|${LINK})`;
// With the space before it, if punctuation or nothing follows.
const ANY_MARK = new RegExp(`\\s*(${MARKS})(?=\\s*[.,;:!?…]|\\s*$)|${MARKS}`, "gu");
const ANY_TAG = new RegExp(TAG, "gu");
const MARKS_BEFORE = new RegExp(`^(?:${MARKS}\\s*)+`, "u");
const MARKS_AFTER = new RegExp(`(?:\\s*${MARKS})+\\s*[.,;:!?…]*$`, "u");

// A sentence as it is, what is before its text, its text, what is after it, and the marks within it, which are lost.
// A tag is kept only if no tag of the sentence is lost.
function takeMarks(sentence) {
  let before = sentence.match(MARKS_BEFORE)?.[0] ?? "";
  let after = sentence.slice(before.length).match(MARKS_AFTER)?.[0] ?? "";
  const within = sentence.slice(before.length, sentence.length - after.length);
  const lost = Array.from(within.matchAll(ANY_MARK), ([mark]) => mark.trim());
  if (lost.some((mark) => mark.startsWith("<"))) {
    lost.unshift(...(before.match(ANY_TAG) ?? []));
    lost.push(...(after.match(ANY_TAG) ?? []));
    before = before.replace(ANY_TAG, "");
    after = after.replace(ANY_TAG, "");
  }
  return { sentence, before, body: normalizeSpaces(within.replace(ANY_MARK, "")), after, lost };
}
