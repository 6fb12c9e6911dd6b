// Requests to the server. An error is always a sentence that can be shown beside what caused it.

const KEY = "driftscore-token";
const BUSY = 503;
const LONGEST_WAIT_S = 5;
const MOST_TRIES = 6;

const sleep = (seconds) => new Promise((done) => { setTimeout(done, 1000 * seconds); });

export class ServerError extends Error {
  constructor(message, status = 0, wait = 1, field = "") {
    super(message);
    this.name = "ServerError";
    this.status = status;
    this.field = field; // of the page that it belongs to, if the server named one
    this.wait = wait; // seconds, where the server said when to try again
  }
}

export const keepToken = (token) => sessionStorage.setItem(KEY, token);

function authorised(headers = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
}

async function request(path, { json, ...options } = {}) {
  const headers = authorised(json === undefined ? options.headers : { "Content-Type": "application/json" });
  const body = json === undefined ? options.body : JSON.stringify(json);
  let response;
  try {
    response = await fetch(path, { ...options, headers, body });
  } catch {
    throw new ServerError("The server does not answer. Is driftscore serve still running?");
  }
  if (response.ok) return response;
  const wait = Math.min(LONGEST_WAIT_S, Number(response.headers.get("Retry-After")) || 1);
  throw new ServerError(await reason(response), response.status, wait, response.headers.get("X-Field") ?? "");
}

async function reason(response) {
  const found = await response.json().catch(() => ({}));
  const said = typeof found.error === "string" ? found.error : found.detail;
  if (typeof said === "string" && said) return said;
  return `The server answered with status ${response.status}.`;
}

export const open = (path, options) => request(path, options);
export const get = async (path) => (await request(path)).json();
export const post = async (path, json) => (await request(path, { method: "POST", json })).json();
export const bytes = async (path) => (await request(path)).arrayBuffer();

const send = async (path, blob) => {
  const headers = { "Content-Type": "application/octet-stream" };
  return (await request(path, { method: "POST", body: blob, headers })).json();
};
export const upload = (blob) => send("/page/clips", blob);
export const uploadExample = (file) => send(`/page/examples?${new URLSearchParams({ name: file.name.slice(-200) })}`, file);

// Runs one call at a time and, when it is done, only the newest of those that came meanwhile: a
// slider that is dragged never builds up a queue, and the last position always gets its answer.
export function newest(work, done, failed) {
  let running = false;
  let waiting = null;
  return async function run(...values) {
    if (running) {
      waiting = values;
      return;
    }
    running = true;
    let next = values;
    let tries = 0;
    while (next) {
      waiting = null;
      tries += 1;
      let again = null;
      try {
        const result = await work(...next);
        if (!waiting) done(result, ...next);
      } catch (error) {
        if (!waiting) failed(error, ...next);
        if (error.status === BUSY && tries < MOST_TRIES) {
          await sleep(error.wait);
          again = next;
        }
      }
      if (waiting) tries = 0;
      next = waiting ?? again;
    }
    running = false;
  };
}
