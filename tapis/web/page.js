// The page: it shows translations and knows nothing of where they come from. A back end is an object with
//
//   describe() → { languages: [{ code, name, targets: [code] }], detects, charLimit, files: [".txt"], keyRequired,
//                  searches: [[value, name]], links: [[name, address]], facts: [[name, value]], typingPause }
//     detects: whether the source may be "auto". charLimit: 0 for none. files: the endings that translateFile takes.
//     searches: ways to search, if there are several. typingPause: milliseconds from the last key to a translation.
//   translate({ text, source, target, key, search }, { signal, progress }) → result
//     result: { lines: [{ text, doubts, sentences: [{ text, doubts }] }], detected: { language, confidence } | null,
//               notices: [text], alternatives: [{ text, score, doubts }],
//               attention: { source: [token], target: [token], rows: [[weight]] } | null, sentences: number,
//               memory: [{ line: number, similarity, source, target }] or none at all }
//     progress(partial result with nDone) may be called before; once nDone = sentences, its lines are final.
//   translateFile(file, { source, target, key, search }, { signal, progress }) → { name, blob }
//     progress(share from 0 to 1) may be called before.
//
// They may reject with an error whose message is shown as it is, and that may have
//
//   needsKey: true         an API key is missing or wrong
//   retryAfter: seconds    the same request may succeed after this time
//   isFatal: true          nothing will succeed any more
"use strict";

const AUTO = "auto"; // the source language that is detected
const DEFAULT_TYPING_PAUSE = 250; // milliseconds
const SAVING_PAUSE = 200; // milliseconds from a change to its entry in the history
const CONFIRMATION_TIME = 2000; // milliseconds that "Copied" is shown
const LONG_TEXT = 600; // characters from which texts are shown in smaller type
const MEANINGS = {
  loop: "it repeated itself",
  short: "it may lack something",
  long: "it may have something added",
  numbers: "numbers differ",
  copied: "it has words of the source",
  invented: "it has words that may not exist",
  unsure: "the model is unsure",
};

const byId = (id) => document.getElementById(id);

function make(tag, text = "", properties = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  return Object.assign(element, properties);
}

// What doubts mean, as a part of a sentence.
function meaning(doubts) {
  return doubts.map((doubt) => MEANINGS[doubt] ?? doubt).join(", ");
}

const ATTENTION = "Attention (last layer): rows = translation, columns = source; darker = stronger.";

// A table of the target's tokens (rows) by the source's (columns). A cell's colour is its weight.
function attentionTable({ source, target, rows }) {
  const table = make("table");
  table.setAttribute("aria-label", ATTENTION);
  const head = table.createTHead().insertRow();
  head.append(make("td"), ...source.map((token) => make("th", "", { scope: "col" })));
  source.forEach((token, s) => head.cells[s + 1].append(make("span", token)));
  const body = table.createTBody();
  target.forEach((token, t) => {
    const row = body.insertRow();
    row.append(make("th", token, { scope: "row" }));
    source.forEach((sourceToken, s) => {
      const percent = (100 * rows[t][s]).toFixed(1);
      const cell = make("td", "", { title: `${token} ← ${sourceToken}: ${percent} %` });
      cell.style.setProperty("--weight", rows[t][s].toFixed(3));
      row.append(cell);
    });
  });
  return table;
}

// A text to check: underlined, with what is doubtful about it as a title and for screen readers.
function doubtful(text, doubts) {
  const element = make("span", text, { className: "doubtful", title: `Check this: ${meaning(doubts)}` });
  element.append(make("span", ` (check: ${meaning(doubts)})`, { className: "hidden unselectable" }));
  return element;
}

// The nodes of a translated line. Only its doubtful sentences are underlined if all of its sentences are in its text.
function lineNodes({ text, doubts, sentences }) {
  if (!doubts.length) return [document.createTextNode(text)];
  const nodes = [];
  let end = 0; // of the text in nodes
  let place = 0; // where the next sentence is looked for
  for (const sentence of sentences ?? []) {
    const start = text.indexOf(sentence.text, place);
    if (start < 0) return [doubtful(text, doubts)];
    place = start + sentence.text.length;
    if (!sentence.doubts.length) continue;
    nodes.push(text.slice(end, start), doubtful(sentence.text, sentence.doubts));
    end = place;
  }
  if (!nodes.length) return [doubtful(text, doubts)];
  return [...nodes, text.slice(end)];
}

// What to check in a translation, in one sentence, or nothing.
function doubtSummary(lines) {
  const found = lines.map(({ doubts }, i) => [i + 1, doubts]).filter(([, doubts]) => doubts.length);
  if (!found.length) return "";
  if (lines.length === 1) return `Check the translation: ${meaning(found[0][1])}.`;
  return `Check ${found.map(([number, doubts]) => `line ${number}: ${meaning(doubts)}`).join("; ")}.`;
}

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const NOT_IN_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g; // characters that XML cannot have

function xmlText(text) {
  return text.replace(NOT_IN_XML, "").replace(/[&<>"]/g, (sign) => ESCAPES[sign]);
}

// A translation memory of units: { source, text, target, translation }, of which source and target are languages.
function translationMemory(units) {
  const variant = (language, text) => `<tuv xml:lang="${xmlText(language)}"><seg>${xmlText(text)}</seg></tuv>`;
  const lines = units.map(
    ({ source, text, target, translation }) => `<tu>${variant(source, text)}${variant(target, translation)}</tu>`,
  );
  return `<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="Tapis" creationtoolversion="1" datatype="plaintext" segtype="sentence"
adminlang="en" srclang="*all*" o-tmf="none"/><body>
${lines.join("\n")}
</body></tmx>
`;
}

// Put a text on the clipboard. Pages without HTTPS have no clipboard API. Return whether it worked.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement;
    const area = make("textarea", "", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return isCopied;
  }
}

class Page {
  constructor(backEnd) {
    this.backEnd = backEnd;
    this.model = null; // what the back end describes, once it has
    this.request = null; // the AbortController of the present translation
    this.fileRequest = null;
    // What is shown, with `asked`, the request, whether it `isFinished`, and `taken`, the alternative that was chosen
    this.result = null;
    this.detected = ""; // the code of the language of the text, if it was detected
    this.hasFailed = false;
    this.translateTimer = 0;
    this.savingTimer = 0;
    this.retryTimer = 0;
    this.fileTimer = 0;
    this.kept = new Map(); // corrected translations, by languages and source
    for (const id of ["text", "source", "target", "swap", "key", "search", "output", "status"]) this[id] = byId(id);
    this.listen();
    this.restore();
  }

  listen() {
    const on = (id, type, listener) => byId(id).addEventListener(type, listener);

    // texts and languages
    on("text", "input", () => this.textChanged());
    on("source", "change", () => this.sourceChanged());
    on("target", "change", () => this.languagesChanged());
    on("search", "change", () => {
      this.saveSoon();
      this.translate();
    });
    on("swap", "click", () => this.swapLanguages());
    on("clear", "click", () => this.setText(""));
    on("again", "click", () => (this.model ? this.translate() : this.start()));
    on("copy", "click", () => this.copy(byId("copy"), this.visibleText()));
    on("correct", "click", () => (byId("correction").hidden ? this.correct() : this.keepCorrection()));
    on("attention", "toggle", () => this.showAttention());
    on("kept-file", "click", () => {
      this.kept.clear();
      this.save();
    });
    on("key-form", "submit", (event) => {
      event.preventDefault();
      this.keyChanged();
    });

    // files
    const [input, root] = [byId("file-input"), document.documentElement];
    on("choose-file", "click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.translateFile(input.files[0]);
      input.value = ""; // so that the same file may be chosen again
    });
    on("file-close", "click", () => this.closeFile());
    const hasFile = (event) => this.model?.files.length && event.dataTransfer?.types.includes("Files");
    root.addEventListener("dragover", (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      byId("drop").hidden = false;
    });
    root.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) byId("drop").hidden = true;
    });
    root.addEventListener("drop", (event) => {
      byId("drop").hidden = true;
      if (!hasFile(event)) return;
      event.preventDefault();
      this.translateFile(event.dataTransfer.files[0]);
    });

    addEventListener("resize", () => this.fitText());
  }

  // Ask the back end what it offers, and translate what was typed meanwhile.
  async start() {
    this.showError(null);
    try {
      this.model = await this.backEnd.describe();
    } catch (error) {
      this.showError(error);
      return;
    }
    const { files, keyRequired, searches = [], links = [], facts = [] } = this.model;
    byId("choose-file").hidden = !files.length;
    byId("file-input").accept = files.join(",");
    byId("choose-file").title = files.join(", ");
    byId("key-form").hidden = !keyRequired && !this.key.value;
    this.search.replaceChildren(...searches.map(([value, name]) => make("option", name, { value })));
    byId("searches").hidden = !searches.length;
    byId("links").replaceChildren(...links.map(([name, href]) => make("a", name, { href })));
    byId("links").hidden = !links.length;
    byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
    byId("model").hidden = !facts.length;
    this.offerLanguages();
    this.textLooksChanged();
    await this.translate();
  }

  // What survives a reload: it is kept in the history of this tab, and nowhere else.

  save() {
    clearTimeout(this.savingTimer);
    // The menus are empty until the back end has described itself.
    const { source, target, search } = this.model ? this.options() : this.saved;
    const kept = Array.from(this.kept.values());
    this.saved = { text: this.text.value, source, target, search, key: this.key.value, kept };
    try {
      history.replaceState(this.saved, "");
    } catch {
      // a text, or corrections, too long for the history
    }
  }

  saveSoon() {
    clearTimeout(this.savingTimer);
    this.savingTimer = setTimeout(() => this.save(), SAVING_PAUSE);
  }

  restore() {
    this.saved = history.state ?? {};
    // A text may have been typed before this script ran.
    if (!this.text.value) this.text.value = this.saved.text ?? "";
    this.key.value = this.saved.key ?? "";
    this.keepUnits(this.saved.kept ?? []);
    this.textLooksChanged();
  }

  // Languages

  language(code) {
    return this.model.languages.find((language) => language.code === code);
  }

  languageName(code) {
    return this.language(code)?.name ?? code;
  }

  // The codes of the languages that a text may be in.
  sources() {
    return this.model.languages.filter(({ code }) => this.targetsOf(code).length).map(({ code }) => code);
  }

  // The codes of the languages that a source may be translated into.
  targetsOf(source) {
    const all = source === AUTO ? this.model.languages : this.model.languages.filter(({ code }) => code === source);
    const targets = all.flatMap(({ code, targets }) => targets.filter((target) => target !== code));
    return Array.from(new Set(targets));
  }

  // Fill the menus. Choose what was chosen before the reload, or what suits the reader.
  offerLanguages() {
    const options = this.sources().map((code) => make("option", this.languageName(code), { value: code }));
    if (this.model.detects) options.unshift(make("option", "Detect language", { value: AUTO }));
    this.source.replaceChildren(...options);
    this.choose(this.source, this.saved.source);
    this.offerTargets(this.saved.target);
    if (this.saved.search) this.choose(this.search, this.saved.search);
  }

  choose(select, value) {
    if (Array.from(select.options).some((option) => option.value === value)) select.value = value;
  }

  offerTargets(...preferred) {
    const targets = this.targetsOf(this.source.value);
    const readers = navigator.languages.map((language) => language.split("-")[0]);
    const wanted = [...preferred, ...readers].find((code) => targets.includes(code)) ?? targets[0];
    this.target.replaceChildren(
      ...targets.map((code) => make("option", this.languageName(code), { value: code, selected: code === wanted })),
    );
    this.showLanguages();
  }

  sourceChanged() {
    this.detected = "";
    this.offerTargets(this.target.value);
    this.languagesChanged();
  }

  languagesChanged() {
    this.showLanguages();
    this.saveSoon();
    this.translate();
  }

  // The language of the text, if it is known.
  knownSource() {
    return this.source.value === AUTO ? this.detected : this.source.value;
  }

  showLanguages() {
    const [source, target] = [this.knownSource(), this.target.value];
    this.text.lang = source;
    byId("printed-text").lang = source;
    this.output.lang = target;
    const [first] = this.source.options;
    if (first?.value === AUTO) {
      first.textContent = this.detected ? `Detected: ${this.languageName(this.detected)}` : "Detect language";
    }
    this.swap.disabled = !source || !this.targetsOf(target).includes(source);
    byId("text-title").dataset.language = source ? this.languageName(source) : "";
    byId("translation-title").dataset.language = this.languageName(target);
  }

  swapLanguages() {
    const [source, target] = [this.knownSource(), this.target.value];
    const { asked, isFinished } = this.result ?? {};
    const isOfText = isFinished && asked.text === this.text.value && asked.target === target;
    const translation = isOfText ? this.visibleText() : "";
    this.source.value = target;
    this.detected = "";
    this.offerTargets(source);
    this.setText(translation || this.text.value);
  }

  // The text

  setText(text) {
    this.text.value = text;
    this.textLooksChanged();
    this.save();
    this.translate();
    this.text.focus();
  }

  textChanged() {
    this.textLooksChanged();
    this.saveSoon();
    clearTimeout(this.translateTimer);
    clearTimeout(this.retryTimer);
    const pause = this.text.value.trim() ? this.model?.typingPause ?? DEFAULT_TYPING_PAUSE : 0;
    this.translateTimer = setTimeout(() => this.translate(), pause);
  }

  nCharacters() {
    let n = 0;
    for (const _ of this.text.value) n += 1; // characters, not UTF-16 units
    return n;
  }

  isTooLong() {
    return this.model?.charLimit > 0 && this.nCharacters() > this.model.charLimit;
  }

  textLooksChanged() {
    const [n, limit] = [this.nCharacters(), this.model?.charLimit];
    const format = (number) => number.toLocaleString("en");
    byId("count").textContent = limit > 0 ? `${format(n)} / ${format(limit)} characters` : `${format(n)} characters`;
    const error = this.isTooLong() ? `The text is ${format(n - limit)} characters too long.` : "";
    if (byId("count-error").textContent !== error) byId("count-error").textContent = error;
    this.text.setAttribute("aria-invalid", String(Boolean(error)));
    byId("count").hidden = !n && !(limit > 0);
    byId("clear").hidden = !n;
    document.documentElement.classList.toggle("long", n > LONG_TEXT);
    byId("printed-text").textContent = this.text.value;
    this.fitText();
  }

  // Make the text field as high as its text.
  fitText() {
    const { style } = this.text;
    style.setProperty("flex", "none"); // for the time of measuring; otherwise it is as high as the other pane
    style.setProperty("height", "auto");
    style.setProperty("height", `${this.text.scrollHeight}px`);
    style.removeProperty("flex");
  }

  // Translations

  async translate(isRetry = false) {
    clearTimeout(this.translateTimer);
    clearTimeout(this.retryTimer);
    this.request?.abort();
    this.request = null;
    if (!this.model || this.hasFailed) return;
    const isKeyMissing = this.model.keyRequired && !this.key.value;
    if (!this.text.value.trim() || this.isTooLong() || isKeyMissing) {
      this.showResult(null);
      if (isKeyMissing && this.text.value) byId("key-message").textContent = "This server asks for an API key.";
      return;
    }

    const controller = new AbortController();
    const request = { abort: () => controller.abort(), startedAt: performance.now() };
    this.request = request;
    this.output.setAttribute("aria-busy", "true");
    this.status.textContent = "Translating…";
    const asked = { text: this.text.value, ...this.options() };
    const show = (result) => {
      if (this.request === request) this.showResult(result, asked);
    };
    try {
      show(await this.backEnd.translate(asked, { signal: controller.signal, progress: show }));
    } catch (error) {
      if (this.request === request) this.translationFailed(error, isRetry);
    }
  }

  options() {
    const [source, target] = [this.source.value, this.target.value];
    return { source, target, key: this.key.value, search: this.search.value };
  }

  translationFailed(error, isRetry) {
    this.showResult(null);
    if (error.retryAfter === undefined || isRetry) {
      this.showError(error);
      return;
    }
    this.showError(retryLater(error));
    this.retryTimer = setTimeout(() => this.translate(true), 1000 * error.retryAfter);
  }

  // The error, beside what caused it; null where there is none any more.
  showError(error) {
    const isOfKey = Boolean(error?.needsKey);
    if (isOfKey) byId("key-form").hidden = false;
    byId("key-message").textContent = isOfKey ? error.message : "";
    this.key.setAttribute("aria-invalid", String(isOfKey));
    byId("fatal").textContent = error?.isFatal ? error.message : "";
    if (error) this.status.textContent = "";
    byId("error").textContent = error && !isOfKey && !error.isFatal ? error.message : "";
    byId("again").hidden = !error || isOfKey || Boolean(error.isFatal);
    if (!error?.isFatal) return;
    this.hasFailed = true;
    for (const control of document.querySelectorAll("main :is(textarea, select, button)")) control.disabled = true;
    this.search.disabled = true;
  }

  // Show a result, the final one or one in progress, with what was asked for; or none.
  showResult(result, asked) {
    const isFinished = !result || result.nDone === undefined || result.nDone === result.sentences;
    const lines = result?.lines ?? [];
    if (JSON.stringify(lines) !== this.shownLines) this.endCorrection(); // one of the same lines goes on
    this.result = result && { ...result, asked, isFinished, taken: null };
    this.output.setAttribute("aria-busy", String(!isFinished));
    this.showError(null);

    // the translation, and what is said about it
    this.showLines(lines);
    byId("correct").hidden = !isFinished || !this.translation();
    byId("notices").replaceChildren(...(result?.notices ?? []).map((notice) => make("p", notice)));
    this.showProgress(result, isFinished);

    // the language that was detected
    const detected = this.source.value === AUTO ? (result?.detected?.language ?? "") : "";
    if (detected !== this.detected && (detected || isFinished)) {
      this.detected = detected;
      this.showLanguages();
      if (detected) this.announce(`Detected: ${this.languageName(detected)}`);
    }

    this.showAlternatives();
    this.showMemory();
    this.showAttention();
  }

  showProgress(result, isFinished) {
    const noun = result?.sentences === 1 ? "sentence" : "sentences";
    if (!result?.sentences) {
      this.status.textContent = "";
    } else if (!isFinished) {
      this.status.textContent = `Translating: ${result.nDone} of ${result.sentences} ${noun}`;
    } else {
      // The final lines may be shown a second time, once there are alternatives.
      this.request.finishedAt ??= performance.now();
      const milliseconds = Math.round(this.request.finishedAt - this.request.startedAt);
      this.status.textContent = `${result.sentences} ${noun}, ${milliseconds} ms`;
    }
  }

  // The same lines are left alone: a selection in them stays, and screen readers do not read them again.
  showLines(lines) {
    const shown = JSON.stringify(lines);
    if (shown === this.shownLines) return;
    this.shownLines = shown;
    const nodes = document.createDocumentFragment(); // a call may not have 100,000 arguments
    for (const [i, line] of lines.entries()) {
      if (i) nodes.append("\n");
      nodes.append(...lineNodes(line).filter((node) => node !== ""));
    }
    this.output.replaceChildren(nodes);
    byId("copy").hidden = !this.translation();
    byId("doubts").textContent = doubtSummary(lines);
  }

  // Corrections, which stay in this tab until they are downloaded as a translation memory: the server learns nothing. The
  // link remains until others are kept, should the download fail.

  correct() {
    this.showCorrection(true);
    const correction = byId("correction");
    correction.value = this.translation();
    correction.lang = this.result.asked.target;
    correction.focus();
  }

  showCorrection(isShown) {
    byId("correction").hidden = !isShown;
    this.output.hidden = isShown;
    byId("correct").querySelector("span").textContent = isShown ? "Keep" : "Correct";
  }

  // End a correction whose translation gives way to another one. What was changed is kept.
  endCorrection() {
    const { hidden, value } = byId("correction");
    if (!hidden && value !== this.translation()) this.keep(value);
    this.showCorrection(false);
  }

  keepCorrection() {
    const corrected = byId("correction").value;
    this.keep(corrected);
    this.showCorrection(false);
    this.result.taken = { text: corrected, doubts: [] };
    this.showLines(corrected.split("\n").map((line) => ({ text: line, doubts: [] })));
    this.showAlternatives();
    byId("correct").focus();
  }

  // Keep each line with its translation, or the whole text if the lines have become others. The text and the languages
  // are those of the translation: the page may show others by now, whose translation has not come yet.
  keep(corrected) {
    const { asked, detected } = this.result;
    const { text, target } = asked;
    const [sources, lines] = [text.split("\n"), corrected.split("\n")];
    const source = asked.source === AUTO ? (detected?.language ?? AUTO) : asked.source;
    const pairs = sources.length === lines.length ? sources.map((one, i) => [one, lines[i]]) : [[text, corrected]];
    const full = pairs.filter(([one, translation]) => one.trim() && translation.trim());
    if (!full.length) return;
    this.keepUnits(full.map(([one, translation]) => ({ source, text: one, target, translation })));
    this.save();
    this.announce("Kept.");
  }

  // Keep units of a translation memory, and offer it.
  keepUnits(units) {
    for (const unit of units) this.kept.set(JSON.stringify([unit.source, unit.target, unit.text]), unit);
    const link = byId("kept-file");
    if (link.hasAttribute("href")) URL.revokeObjectURL(link.href);
    const memory = new Blob([translationMemory([...this.kept.values()])], { type: "application/x-tmx+xml" });
    link.href = URL.createObjectURL(memory);
    const n = this.kept.size;
    link.textContent = `Download ${n} corrected ${n === 1 ? "line" : "lines"} as a translation memory`;
    byId("kept").hidden = !n;
  }

  // The text of the translation, without a correction that is not kept yet.
  translation() {
    if (!this.result) return "";
    return this.result.taken?.text ?? this.result.lines.map(({ text }) => text).join("\n");
  }

  // What can be seen as the translation: its text, or the correction that is being written.
  visibleText() {
    const { hidden, value } = byId("correction");
    return hidden ? this.translation() : value;
  }

  showAlternatives() {
    const { alternatives = [], lines = [], taken = null } = this.result ?? {};
    const best = lines.length === 1 ? lines[0] : null;
    const all = best ? [best, ...alternatives.filter(({ text }) => text !== best.text)] : alternatives;
    byId("alternatives").hidden = all.length < 2;
    if (all.length < 2) {
      byId("alternatives-list").replaceChildren();
      return;
    }
    const items = all.map((alternative) => this.alternativeItem(alternative, alternative === (taken ?? best)));
    byId("alternatives-list").replaceChildren(...items);
  }

  alternativeItem(alternative, isTaken) {
    const take = make("button", alternative.text, { type: "button", className: "take", dir: "auto", title: "Take it" });
    take.lang = this.target.value;
    take.setAttribute("aria-pressed", String(isTaken));
    if (alternative.score !== undefined) take.title += `; score ${alternative.score.toFixed(3)}`;
    take.addEventListener("click", () => {
      const place = Array.from(byId("alternatives-list").children).indexOf(item);
      this.endCorrection();
      this.result.taken = alternative;
      this.showLines([alternative]);
      this.showAlternatives();
      byId("alternatives-list").children[place].querySelector("button").focus();
    });
    const item = make("li");
    item.append(take);
    const doubts = alternative.doubts.filter((doubt) => doubt !== "unsure"); // which nearly all of them are
    if (doubts.length) item.append(make("span", meaning(doubts), { className: "quiet" }));
    item.append(this.copyButton(alternative.text));
    return item;
  }

  copyButton(text) {
    const copy = make("button", "", { type: "button", className: "copy" });
    copy.append(make("span", "Copy"));
    copy.setAttribute("aria-label", `Copy: ${text}`);
    copy.addEventListener("click", () => this.copy(copy, text));
    return copy;
  }

  // What a translation memory has that is like the lines.
  showMemory() {
    const { memory = [], lines = [] } = this.result ?? {};
    const items = memory.map(({ line, similarity, source, target }) => {
      const item = make("li");
      item.append(make("span", target, { lang: this.target.value, dir: "auto" }));
      const like = similarity === 1 ? "as it is" : `${Math.floor(100 * similarity)} % like: `;
      const comment = make("span", lines.length > 1 ? `line ${line}, ${like}` : like, { className: "quiet" });
      if (similarity < 1) comment.append(make("bdi", source, { lang: this.knownSource() }));
      item.append(comment);
      item.append(this.copyButton(target));
      return item;
    });
    byId("memory").hidden = !items.length;
    byId("memory-list").replaceChildren(...items);
  }

  // The table is made once it is looked at.
  showAttention() {
    const attention = this.result?.attention;
    const [details, map] = [byId("attention"), byId("attention-map")];
    details.hidden = !attention;
    if (attention && details.open) map.replaceChildren(make("p", ATTENTION), attentionTable(attention));
    else map.replaceChildren();
  }

  announce(message) {
    byId("live").textContent = message;
  }

  async copy(button, text) {
    const label = button.querySelector("span");
    const isCopied = await copyText(text);
    label.textContent = isCopied ? "Copied" : "Not copied";
    this.announce(isCopied ? "Copied." : "The browser does not allow copying. Select the text and copy it.");
    clearTimeout(button.timer);
    button.timer = setTimeout(() => (label.textContent = "Copy"), CONFIRMATION_TIME);
  }

  keyChanged() {
    this.save();
    this.showError(null);
    this.translate();
  }

  // Files

  async translateFile(file, isRetry = false) {
    this.closeFile();
    const request = new AbortController();
    this.fileRequest = request;
    byId("file").hidden = false;
    const ending = file.name.match(/\.[^.]*$/)?.[0].toLowerCase();
    if (!this.model.files.includes(ending)) {
      const { files } = this.model;
      this.fileFailed({ message: `${file.name} cannot be translated here: choose a file in ${files.join(", ")}.` });
      return;
    }

    byId("file-status").textContent = `Translating ${file.name} into ${this.languageName(this.target.value)}…`;
    const bar = byId("file-progress");
    bar.removeAttribute("value"); // not known yet
    bar.hidden = false;
    const progress = (share) => (bar.value = share);
    try {
      const { signal } = request;
      const { name, blob } = await this.backEnd.translateFile(file, this.options(), { signal, progress });
      if (this.fileRequest !== request) return;
      bar.hidden = true;
      byId("file-status").textContent = `${file.name} is translated.`;
      const link = byId("file-result");
      Object.assign(link, { href: URL.createObjectURL(blob), download: name, hidden: false });
      link.textContent = `Download ${name}`;
      byId("file-close").textContent = "Close";
    } catch (error) {
      if (this.fileRequest !== request) return;
      if (error.retryAfter === undefined || isRetry) {
        this.fileFailed(error);
        return;
      }
      this.fileFailed(retryLater(error));
      this.fileTimer = setTimeout(() => this.translateFile(file, true), 1000 * error.retryAfter);
    }
  }

  fileFailed(error) {
    byId("file-progress").hidden = true;
    byId("file-status").textContent = "";
    byId("file-close").textContent = "Close";
    if (error.needsKey) byId("key-form").hidden = false;
    byId("file-error").textContent = error.message;
  }

  closeFile() {
    clearTimeout(this.fileTimer);
    this.fileRequest?.abort();
    this.fileRequest = null;
    const link = byId("file-result");
    if (link.hasAttribute("href")) URL.revokeObjectURL(link.href);
    link.removeAttribute("href");
    link.hidden = true;
    byId("file").hidden = true;
    byId("file-progress").hidden = true;
    byId("file-close").textContent = "Cancel";
    byId("file-status").textContent = "";
    byId("file-error").textContent = "";
  }
}

// The error that says when the page tries again by itself.
function retryLater({ message, retryAfter }) {
  return { message: `${message} Trying again in ${Math.ceil(retryAfter)} s.` };
}

// The name of a file's translation: letter.txt → letter.fr.txt.
function translatedName(name, target) {
  return name.replace(/(\.[^.]*)?$/, `.${target}$1`);
}

// Show the page of a back end once the document is there.
function startPage(backEnd) {
  addEventListener("DOMContentLoaded", () => new Page(backEnd).start());
}
