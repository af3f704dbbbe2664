// The page: it checks the parts of the file, starts the worker, and shows what the worker sends.
"use strict";

const PARTS = ["engine", "worker", "description", "weights"];
const TYPING_PAUSE = 150; // milliseconds after the last key
const DAMAGED = "This file is damaged: copy or download it again.";

// CRC-32, as zlib computes it.
function crc32(bytes) {
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    let value = i;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    table[i] = value;
  }
  let crc = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) crc = table[(crc ^ bytes[i]) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// The text of a part of this file. Throws an error if it is not as it was written.
function part(name) {
  const element = document.getElementById(name);
  const text = element ? element.textContent : "";
  const bytes = new TextEncoder().encode(text);
  if (!element || bytes.length !== Number(element.dataset.size) || crc32(bytes) !== Number(element.dataset.crc)) {
    throw new Error(DAMAGED);
  }
  return text;
}

function make(tag, text = "", properties = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  return Object.assign(element, properties);
}

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

// A table of the target's tokens (rows) by the source's (columns). A cell's colour is its weight.
function attentionTable({ source, target, rows }) {
  const table = make("table");
  table.append(make("caption", "From each token of the translation (rows) to the source: the last layer's attention."));
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

// Show what the model is, with the names of its languages.
function showModel({ directions, facts }) {
  const pairs = directions.map((pair) => pair.map(languageName).join(" to ")).join(", ");
  const heading = directions.length <= 2 ? pairs : "Translate";
  document.title = heading;
  document.querySelector("h1").textContent = heading;
  for (const [name, value] of [...facts, ["Languages", pairs]]) document.getElementById("facts").append(make("dt", name), make("dd", value));
}

// Offer the target languages, if there are several.
function showTargets(directions) {
  const targets = Array.from(new Set(directions.map(([, target]) => target)));
  const select = document.getElementById("target");
  select.append(...targets.map((target) => make("option", languageName(target), { value: target })));
  document.getElementById("target-choice").hidden = targets.length < 2;
}

function start() {
  const [input, output, status] = ["input", "output", "status"].map((id) => document.getElementById(id));
  const [target, search, attention] = ["target", "search", "attention"].map((id) => document.getElementById(id));
  let job = 0;
  let startedAt = 0;
  let timer = 0;
  let worker = null;

  function fail(message) {
    status.textContent = message;
    status.className = "error";
    output.setAttribute("aria-busy", "false");
    clearTimeout(timer);
    for (const control of [input, target, search]) control.disabled = true;
    worker?.terminate();
  }

  function translate() {
    job += 1;
    startedAt = performance.now();
    attention.replaceChildren();
    output.setAttribute("aria-busy", "true");
    output.lang = target.value;
    status.textContent = input.value.trim() ? "Translating…" : "Ready.";
    const isBeam = search.value === "beam";
    worker.postMessage({ job, text: input.value, target: target.value, isBeam, wantsAttention: true });
  }

  function translateSoon() {
    clearTimeout(timer);
    timer = setTimeout(translate, TYPING_PAUSE);
  }

  function receive({ data }) {
    if (data.kind === "failed") {
      fail(`This page has failed: ${data.message}`);
    } else if (data.kind === "ready") {
      status.textContent = "Ready.";
      if (input.value.trim()) translate();
    } else if (data.job !== job) {
      return; // of an earlier text
    } else if (data.kind === "attention") {
      attention.replaceChildren(attentionTable(data.attention));
    } else {
      output.textContent = data.text;
      const sentences = data.nUnits === 1 ? "sentence" : "sentences";
      if (data.kind === "progress") {
        status.textContent = `Translating: ${data.nDone} of ${data.nUnits} ${sentences}`;
      } else {
        const milliseconds = Math.round(performance.now() - startedAt);
        status.textContent = data.nUnits ? `${data.nUnits} ${sentences}, ${milliseconds} ms` : "Ready.";
        output.setAttribute("aria-busy", "false");
      }
    }
  }

  // Check the parts, show what the model is, and start the worker.
  try {
    const [engine, code, description, weights] = PARTS.map(part);
    const model = JSON.parse(description);
    showModel(model);
    showTargets(model.directions);
    const url = URL.createObjectURL(new Blob([engine, "\n", code], { type: "text/javascript" }));
    worker = new Worker(url);
    worker.onmessage = receive;
    worker.onerror = (event) => fail(`This browser cannot run the page: ${event.message ?? "no worker"}`);
    worker.postMessage({ description: model, weights });
    for (const name of PARTS) document.getElementById(name).remove(); // the worker has them
  } catch (error) {
    fail(error.message === DAMAGED ? DAMAGED : `This browser cannot run the page: ${error.message}`);
    return;
  }
  input.addEventListener("input", translateSoon);
  target.addEventListener("change", translate);
  search.addEventListener("change", translate);
}

addEventListener("DOMContentLoaded", start);
