// The worker: it translates, so that the page stays responsive. The engine's files stand before this one.
//
// In: { description, weights }, once; then { job, text, target, isBeam, wantsAttention }, of which the latest counts.
// Out: { kind: "ready" }; { kind: "progress" | "done", job, text, nDone, nUnits }; { kind: "attention", job, attention }.

const PROGRESS_PAUSE = 100; // milliseconds; each message has the whole text

let translator = null;
let latestJob = 0;
let lastPause = 0;

class Outdated extends Error {}

function bytesOf(base64) {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes.buffer;
}

// Let messages arrive, every few milliseconds. setTimeout would wait for some more.
const channel = new MessageChannel();
function messagesArrive() {
  return new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
}

// Ends a job once there is a later one.
async function pause(job) {
  if (performance.now() - lastPause > 10) {
    await messagesArrive();
    lastPause = performance.now();
  }
  if (job !== latestJob) throw new Outdated();
}

async function translateText({ job, text, target, isBeam, wantsAttention }) {
  // Split the text into lines, and the lines into sentences.
  const pauseOfJob = () => pause(job);
  const lines = [];
  for (const line of text.split(/\r\n|\r|\n/)) {
    await pauseOfJob();
    lines.push({ ...translator.splitLine(line, target), translations: [] });
  }
  const nUnits = lines.reduce((sum, { units }) => sum + units.length, 0);
  const joined = () => lines.map((line) => joinLine(line.marker, line.translations, target)).join("\n");

  // Translate them one by one.
  let nDone = 0;
  let last = null;
  let lastProgress = 0;
  for (const line of lines) {
    for (const unit of line.units) {
      await pauseOfJob();
      last = hasLetters(unit) ? await translator.translateSentence(unit, target, isBeam, pauseOfJob) : null;
      line.translations.push(last ? last.text : unit);
      nDone += 1;
      if (nDone < nUnits && performance.now() - lastProgress > PROGRESS_PAUSE) {
        postMessage({ kind: "progress", job, text: joined(), nDone, nUnits });
        lastProgress = performance.now();
      }
    }
  }
  postMessage({ kind: "done", job, text: joined(), nDone, nUnits });

  // Show the attention of a single sentence.
  if (wantsAttention && nUnits === 1 && last) {
    const attention = await translator.attention(last.source, last.ids, pauseOfJob);
    postMessage({ kind: "attention", job, attention });
  }
}

// Browsers compile what runs often. Without this, the first sentence would take several times as long as the others.
async function warmUp() {
  for (const isBeam of [false, true]) await translator.translateSentence("A, b.", "", isBeam, () => pause(0));
}

onmessage = async ({ data }) => {
  if (data.description) {
    translator = new Translator(data.description, bytesOf(data.weights));
    postMessage({ kind: "ready" });
  }
  latestJob = data.job ?? 0;
  try {
    await (data.description ? warmUp() : translateText(data));
  } catch (error) {
    if (!(error instanceof Outdated)) throw error;
  }
};

// An error within a promise does not reach the page by itself.
addEventListener("unhandledrejection", (event) => {
  postMessage({ kind: "failed", message: String(event.reason?.message ?? event.reason) });
});
