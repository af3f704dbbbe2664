// The worker: it translates, so that the page stays responsive. The engine's files stand before this one.
//
// In: { description, module }, once; { weights, size, crc }, for each part of the weights; then { job, text, source,
//     target, isBeam }, and { cancel: job }.
// Out: { kind: "ready" }; { kind: "progress" | "done", job, result }, with a result as page.js describes it;
//      { kind: "damaged" }; { kind: "failed", message }.

const PROGRESS_PAUSE = 100; // milliseconds between messages, at least
const PROGRESS_SHARE = 10; // times as long as a message takes: each has the whole text

let translator = null;
let lastPause = 0;
const jobs = new Set(); // those that are neither done nor cancelled

class Cancelled extends Error {}

// Let messages arrive, every few milliseconds. setTimeout would wait for some more.
const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()();
function messagesArrive() {
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel.port2.postMessage(null);
  });
}

// Ends a job that was cancelled meanwhile.
async function pause(job) {
  if (performance.now() - lastPause > 10) {
    await messagesArrive();
    lastPause = performance.now();
  }
  if (!jobs.has(job)) throw new Cancelled();
}

// The result so far: each line from its translated units. Marks are in the lines that are finished.
function resultOf(lines, target) {
  return lines.map(({ marker, units, translations, finished }) => {
    const done = translations.map((one, i) => one ?? { text: units[i], doubts: [] });
    return {
      text: finished ?? joinLine(marker, done.map(({ text }) => text), target),
      doubts: Array.from(new Set(done.flatMap(({ doubts }) => doubts))),
      sentences: done.map(({ text, doubts }) => ({ text, doubts })),
    };
  });
}

// Translates a line in place, unit by unit. `onUnit` is called after each.
async function translateLine(line, source, target, search, pauseOfJob, onUnit) {
  for (const unit of line.units) {
    await pauseOfJob();
    line.translations.push(hasLetters(unit) ? translator.translateUnit(unit, source, target, search)[0] : null);
    onUnit();
  }
  line.finished = translator.joinLine(line, line.translations, target);
}

async function translateText({ job, text, source, target, isBeam }) {
  // Split the text into lines, and the lines into units.
  const pauseOfJob = () => pause(job);
  const search = isBeam ? { beam: BEAM } : {};
  const lines = [];
  for (const typed of text.split(/\r\n|\r|\n/)) {
    await pauseOfJob();
    lines.push({ typed, ...translator.splitLine(typed, source), translations: [] });
  }
  const units = lines.flatMap((line) => line.units);
  const rest = { detected: null, notices: translator.notices(units), sentences: units.length };
  const nothing = { alternatives: [], attention: null };

  // Translate them one by one.
  let nDone = 0;
  let nextProgress = 0;
  const postProgress = () => {
    const begin = performance.now();
    const result = { ...rest, ...nothing, lines: resultOf(lines, target), nDone };
    postMessage({ kind: "progress", job, result });
    const end = performance.now();
    nextProgress = end + Math.max(PROGRESS_PAUSE, PROGRESS_SHARE * (end - begin));
  };
  for (const [i, line] of lines.entries()) {
    await translateLine(line, source, target, search, pauseOfJob, () => {
      nDone += 1;
      if (nDone < units.length && performance.now() > nextProgress) postProgress();
    });

    // Where numbers are missing, translate the line once more without them.
    if (hasNumbersOf(line.typed, line.finished)) continue;
    const again = { typed: line.typed, ...translator.splitLine(line.typed, source, true), translations: [] };
    await translateLine(again, source, target, search, pauseOfJob, () => {});
    if (hasNumbersOf(line.typed, again.finished)) lines[i] = again;
  }

  // Look closer at a single sentence, while its translation can be read.
  let extras = nothing;
  const [line] = lines.filter(({ translations }) => translations.some(Boolean));
  if (units.length === 1 && line?.units.length === 1) {
    postProgress();
    await pauseOfJob();
    const [{ source: sourceIds, ids }] = line.translations;
    const attention = translator.attention(sourceIds, ids);
    await pauseOfJob();
    const best = translator.translateUnit(line.units[0], source, target, { beam: BEAM, nBest: BEAM });
    const alternatives = best.map((one) => ({ ...one, text: translator.joinLine(line, [one], target) }));
    extras = { attention, alternatives: alternatives.map(({ text, score, doubts }) => ({ text, score, doubts })) };
  }
  postMessage({ kind: "done", job, result: { ...rest, ...extras, lines: resultOf(lines, target) } });
}

// Browsers compile what runs often. Without this, the first sentence would take several times as long as the others.
function warmUp() {
  for (const beam of [1, BEAM]) translator.nBest("A, b.", "", { beam });
  translator.notices(["A, b."]);
}

function takeWeights({ weights, ...check }) {
  let bytes = null;
  try {
    bytes = bytesOf(weights);
  } catch {
    // what is not Base64
  }
  if (!bytes || !areIntact(bytes, check)) {
    postMessage({ kind: "damaged" });
    return;
  }
  translator.engine.takeWeights(bytes);
  if (!translator.engine.hasWeights()) return;
  postMessage({ kind: "ready" });
  warmUp();
}

onmessage = async ({ data }) => {
  if (data.description) {
    translator = new Translator(data.description, bytesOf(data.module));
  } else if (data.weights !== undefined) {
    takeWeights(data);
  } else if (data.cancel !== undefined) {
    jobs.delete(data.cancel);
  } else {
    jobs.add(data.job);
    try {
      await translateText(data);
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
    } finally {
      jobs.delete(data.job);
    }
  }
};

// An error within a promise does not reach the page by itself.
addEventListener("unhandledrejection", (event) => {
  postMessage({ kind: "failed", message: String(event.reason?.message ?? event.reason) });
});
