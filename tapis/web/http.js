// The back end that asks a server: tapis/serving/api.py describes its HTTP API. page.js describes what a back end is.
"use strict";

const UNREACHABLE = "The server cannot be reached. Check the connection and try again.";

class ServerError extends Error {
  constructor(message, response) {
    super(message);
    // Other requests are forbidden, too: those of other sites, and what a proxy does not let through.
    if (response.status === 403 && /\b(api_)?key\b/.test(message)) this.needsKey = true;
    if (response.status === 429) this.retryAfter = secondsUntil(response.headers.get("Retry-After"));
  }
}

// The value of Retry-After, in seconds or as a date, as seconds from now.
function secondsUntil(value) {
  const seconds = Number(value ?? 1);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const moment = Date.parse(value);
  return Number.isNaN(moment) ? 1 : Math.max(0, (moment - Date.now()) / 1000);
}

// Fetch from this server. Rejects with a ServerError unless it succeeds.
async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(UNREACHABLE);
  }
  if (response.ok) return response;
  let message = `The server answers with the status ${response.status}.`;
  try {
    const { error } = await response.json();
    if (typeof error === "string" && error) message = error;
  } catch {
    // not from the API: the status has to do
  }
  throw new ServerError(message, response);
}

async function requestJson(path, options) {
  const response = await request(path, options);
  try {
    return await response.json();
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server's answer cannot be read.");
  }
}

const httpBackEnd = {
  async describe() {
    const answers = ["languages", "frontend/settings"].map((path) => requestJson(path));
    const [languages, settings] = await Promise.all(answers);
    const nSources = languages.filter(({ code, targets }) => targets.some((target) => target !== code)).length;
    return {
      languages,
      detects: nSources > 1,
      charLimit: settings.charLimit > 0 ? settings.charLimit : 0,
      files: settings.filesTranslation ? settings.supportedFilesFormat : [],
      keyRequired: Boolean(settings.keyRequired),
      links: [["API", "docs"]],
    };
  },

  async translate({ text, source, target, key }, { signal }) {
    const { detectedLanguage, ...result } = await requestJson("page/translate", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ q: text, source, target, ...(key && { api_key: key }) }),
      signal,
    });
    return { ...result, detected: detectedLanguage };
  },

  async translateFile(file, { source, target, key }, { signal }) {
    const body = new FormData();
    body.append("file", file);
    for (const [name, value] of Object.entries({ source, target })) body.append(name, value);
    if (key) body.append("api_key", key);
    const { translatedFileUrl } = await requestJson("translate_file", { method: "POST", body, signal });

    // Only the end of the path is used: behind a proxy, the server may know neither its own name nor where it is.
    const { pathname, search } = new URL(translatedFileUrl, location.href);
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const response = await request(`download_file/${pathname.split("/").pop()}${search}`, { headers, signal });
    return { name: translatedName(file.name, target), blob: await response.blob() };
  },
};

startPage(httpBackEnd);
