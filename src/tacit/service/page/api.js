// Calls of the service: the key, problems in words, and the stream of changes.

const STORED = "tacit.key";
const PATIENCE = 10_000;
const LONG = 90_000; // for what changes something: a large policy is tried first
const SILENCE = 20_000; // of the stream, after which the service is asked whether it is there
const FIRST_DELAY = 500;
const LONGEST_DELAY = 15_000;

export class Problem extends Error {
  constructor(status, words) {
    super(words);
    this.status = status; // 0: the service did not answer
  }

  get unwelcome() {
    return this.status === 401;
  }
}

// The key from the address, which is removed from it at once, or the one that this tab was given before.
export function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) {
    history.replaceState(null, "", location.pathname + location.search);
    keepKey(given);
  }
  return given || sessionStorage.getItem(STORED);
}

export const keepKey = (key) => sessionStorage.setItem(STORED, key);
export const dropKey = () => sessionStorage.removeItem(STORED);

const WORDS = {
  0: "The service does not answer.",
  401: "The service does not know this key.",
  403: "This key may not do that: it needs another scope.",
  404: "There is nothing of that name.",
  413: "That is more than the service takes at once.",
  429: "Too many requests: try again in a moment.",
  503: "The service is busy: try again in a moment.",
};

async function problemOf(response) {
  let detail = null;
  try {
    const said = await response.json();
    detail = said.detail || said.title;
  } catch { /* not JSON: the status has to do */ }
  return new Problem(response.status, detail || WORDS[response.status] || `The service answered ${response.status}.`);
}

export class Api {
  constructor(key) {
    this.key = key;
    this.ahead = 0; // seconds by which the service's clock is ahead of this one
  }

  async call(method, path, body) {
    const response = await this.#send(method, path, body, AbortSignal.timeout(method === "GET" ? PATIENCE : LONG));
    const date = Date.parse(response.headers.get("Date") || "");
    if (date) this.ahead = Math.abs(date - Date.now()) < 3000 ? 0 : (date - Date.now()) / 1000;
    if (!response.ok) throw await problemOf(response);
    const text = await response.text();
    return { status: response.status, data: text ? JSON.parse(text) : null };
  }

  async get(path) {
    return (await this.call("GET", path)).data;
  }

  async find(path, without = 404) { // null where that is the answer
    try {
      return await this.get(path);
    } catch (problem) {
      if (problem.status === without) return null;
      throw problem;
    }
  }

  async #send(method, path, body, signal) {
    const headers = { Authorization: `Bearer ${this.key}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const content = body === undefined ? undefined : JSON.stringify(body);
    try {
      return await fetch(path, { method, headers, body: content, signal, cache: "no-store" });
    } catch {
      throw new Problem(0, WORDS[0]);
    }
  }

  // Calls `changed` with every summary, `state` with true and false as the service comes and goes; ends with the signal.
  async follow(changed, state, signal) {
    let delay = FIRST_DELAY;
    while (!signal.aborted) {
      try {
        await this.#listen(() => { delay = FIRST_DELAY; state(true); }, changed, signal);
      } catch (problem) {
        if (signal.aborted) return;
        if (problem.unwelcome || problem.status === 403) { state(false, problem); return; }
        state(false, problem);
      }
      await pause(delay * (0.75 + Math.random() / 2), signal);
      delay = Math.min(2 * delay, LONGEST_DELAY);
    }
  }

  async #listen(connected, heard, signal) {
    const over = new AbortController();
    const stop = () => over.abort();
    signal.addEventListener("abort", stop);
    let alive = setTimeout(stop, PATIENCE);
    const watch = () => {
      clearTimeout(alive);
      alive = setTimeout(async () => ((await this.#present()) ? watch() : stop()), SILENCE);
    };
    try {
      const response = await this.#send("GET", "v1/live", undefined, over.signal);
      if (!response.ok) throw await problemOf(response);
      connected();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = new Events(heard);
      for (;;) {
        watch();
        const { done, value } = await reader.read();
        if (done) throw new Problem(0, WORDS[0]);
        events.take(value);
      }
    } catch (error) {
      throw error instanceof Problem ? error : new Problem(0, WORDS[0]);
    } finally {
      clearTimeout(alive);
      signal.removeEventListener("abort", stop);
      stop();
    }
  }

  async #present() {
    try {
      return (await fetch("healthz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE / 2) })).ok;
    } catch {
      return false;
    }
  }
}

// Events of a text/event-stream, from pieces of any size; comments keep a connection open and say nothing.
export class Events {
  constructor(heard) {
    this.heard = heard;
    this.rest = "";
  }

  take(piece) {
    const text = (this.rest + piece).replace(/\r\n/g, "\n");
    const blocks = text.split("\n\n");
    this.rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => line.startsWith("data:"));
      if (lines.length) this.heard(JSON.parse(lines.map((line) => line.slice(5).trimStart()).join("\n")));
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      removeEventListener("online", over);
      resolve();
    };
    const timer = setTimeout(over, milliseconds);
    signal.addEventListener("abort", over);
    addEventListener("online", over);
  });
}
