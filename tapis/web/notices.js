// What a reader should know before the model invents something: characters and scripts that it has never seen.

const MOST_SHOWN = 12; // in a notice
const SEPARATOR = " "; // of tokens; within one, it has another character
// Characters that carry meaning: neither punctuation nor spaces nor digits, nor selectors of an emoji's variant.
const CHARACTERS = /(?![\ufe00-\ufe0f])[\p{L}\p{M}\p{S}]/gu;
const SCRIPTS = [
  ...["Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati"],
  ...["Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin"],
  ...["Malayalam", "Myanmar", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan"],
].map((name) => [name, new RegExp(`\\p{Script=${name}}`, "u")]);

// The characters that tokens of the vocabulary have whole.
function knownCharacters(tokenizer) {
  const tokens = tokenizer.tokens.slice(tokenizer.firstTextId).join(SEPARATOR);
  const bytes = Uint8Array.from(tokens, (character) => BYTE_OF_CHARACTER.get(character) ?? SEPARATOR.charCodeAt());
  const known = new Set(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
  known.delete("\ufffd"); // for a part of a character
  return known;
}

// The name of a character's script, if it is one of the more frequent ones.
function scriptOf(character) {
  return SCRIPTS.find(([, pattern]) => pattern.test(character))?.[0];
}

// A few of many things, in words.
function someOf(things) {
  return things.slice(0, MOST_SHOWN).join(", ") + (things.length > MOST_SHOWN ? ", …" : "");
}

// The notices about sentences from which marks were taken out (marks.js). known: what `knownCharacters` found.
function noticesAbout(sentences, known) {
  const text = sentences.join("\n");
  const notices = [];
  const unseen = new Set((text.match(CHARACTERS) ?? []).filter((character) => !known.has(character)));

  // A text in scripts of which the model knows no letter.
  const scriptsOf = (letters) => new Set(letters.map(scriptOf).filter(Boolean));
  const isLetter = (character) => /\p{L}/u.test(character);
  const knownScripts = scriptsOf(Array.from(known).filter(isLetter));
  const scripts = Array.from(scriptsOf(text.match(/\p{L}/gu) ?? []));
  if (scripts.length && !scripts.some((script) => knownScripts.has(script))) {
    const names = scripts.join(" and ");
    notices.push(`This text is in ${names} script, which this model has never seen. Its translation is invented.`);
    for (const character of unseen) if (scripts.includes(scriptOf(character))) unseen.delete(character);
  }

  // Other characters that it has never seen. A combining mark needs something to stand on.
  const others = Array.from(unseen, (character) => (/\p{M}/u.test(character) ? `◌${character}` : character));
  if (others.length) {
    const fate = others.length === 1 ? "It will be lost or invented." : "They will be lost or invented.";
    notices.push(`The model has never seen: ${someOf(others)}. ${fate}`);
  }
  return notices;
}
