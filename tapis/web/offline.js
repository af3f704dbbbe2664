// The back end in the page's own file: it checks the parts of the file, and starts the worker that translates.
// page.js describes what a back end is.
"use strict";

const PARTS = ["engine", "worker", "module", "description"]; // before the weights
const DAMAGED = "This file is damaged: copy or download it again.";

function fatal(message) {
  return Object.assign(new Error(message), { isFatal: true });
}

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

const offlineBackEnd = {
  model: null, // the description, once the worker was started
  worker: null,
  ready: null, // a promise
  nParts: 0, // of the weights that were handed over
  failure: null, // why the worker translates no longer
  nJobs: 0,
  jobs: new Map(), // what receives the results of each job

  // The file calls it once the parts before the weights are there.
  start() {
    const elements = PARTS.map(byId);
    const bytesOfText = ({ textContent }) => new TextEncoder().encode(textContent);
    if (!elements.every((element) => areIntact(bytesOfText(element), element.dataset))) return;
    const [engine, code, module, description] = elements.map(({ textContent }) => textContent);
    for (const element of elements) element.remove();
    this.model = JSON.parse(description);
    this.ready = this.startWorker(`${engine}\n${code}`, { description: this.model, module });
    this.ready.catch(() => {}); // `describe` will say it
  },

  // The file calls it behind each part of the weights.
  handOver() {
    const part = document.currentScript.previousElementSibling;
    const { size, crc } = part.dataset;
    this.worker?.postMessage({ weights: part.textContent, size, crc });
    this.nParts += 1;
    part.remove(); // the worker has it
  },

  async describe() {
    const { model } = this;
    if (this.nParts !== model?.weights.n_parts) throw fatal(DAMAGED);
    try {
      await this.ready;
    } catch (error) {
      throw error.isFatal ? error : fatal(`This browser cannot run the page: ${error.message}`);
    }

    const codes = Array.from(new Set(model.directions.flat()));
    const targetsOf = (code) => model.directions.filter(([source]) => source === code).map(([, target]) => target);
    const pairs = model.directions.map((pair) => pair.map(languageName).join(" to ")).join(", ");
    return {
      languages: codes.map((code) => ({ code, name: languageName(code), targets: targetsOf(code) })),
      detects: false,
      charLimit: 0,
      files: [".txt"],
      keyRequired: false,
      searches: [
        ["greedy", "Fast (greedy)"],
        ["beam", "Better (beam 5)"],
      ],
      facts: [...model.facts, ["Languages", pairs]],
      typingPause: 150,
    };
  },

  // Resolves once the worker is ready.
  startWorker(code, parts) {
    return new Promise((resolve, reject) => {
      this.worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
      const fail = (message) => {
        this.failure = fatal(message);
        this.worker.terminate();
        reject(this.failure);
        for (const job of this.jobs.values()) job.reject(this.failure);
      };
      this.worker.onerror = (event) => fail(`This browser cannot run the page: ${event.message ?? "no worker"}`);
      this.worker.onmessage = ({ data }) => {
        if (data.kind === "ready") resolve();
        else if (data.kind === "damaged") fail(DAMAGED);
        else if (data.kind === "failed") fail(`This page has failed: ${data.message}`);
        else if (data.kind === "progress") this.jobs.get(data.job)?.progress(data.result);
        else this.jobs.get(data.job)?.resolve(data.result);
      };
      this.worker.postMessage(parts);
    });
  },

  translate({ text, source, target, search }, { signal, progress = () => {} }) {
    this.nJobs += 1;
    const job = this.nJobs;
    return new Promise((resolve, reject) => {
      if (this.failure) throw this.failure;
      signal.addEventListener("abort", () => {
        this.worker.postMessage({ cancel: job });
        reject(signal.reason);
      });
      this.jobs.set(job, { resolve, reject, progress });
      this.worker.postMessage({ job, text, source, target, isBeam: search === "beam" });
    }).finally(() => this.jobs.delete(job));
  },

  // A file of plain text, line by line.
  async translateFile(file, options, { signal, progress }) {
    let text = "";
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      throw new Error(`${file.name} is not plain text in UTF-8.`);
    }
    const report = ({ nDone, sentences }) => progress(nDone / sentences);
    const { lines } = await this.translate({ ...options, text }, { signal, progress: report });
    const lineEnds = text.match(/\r\n|\r|\n/g) ?? [];
    const translated = lines.map((line, i) => line.text + (lineEnds[i] ?? "")).join("");
    const blob = new Blob([translated], { type: "text/plain;charset=utf-8" });
    return { name: translatedName(file.name, options.target), blob };
  },
};

startPage(offlineBackEnd);
