// Requests to the server. An error is always a sentence that can be shown beside what caused it.

const KEY = "driftscore-token";

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
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
  throw new ServerError(await reason(response), response.status);
}

async function reason(response) {
  const found = await response.json().catch(() => ({}));
  const said = typeof found.error === "string" ? found.error : found.detail;
  if (typeof said === "string" && said) return said;
  if (response.status === 503) return "The server is busy; it will be tried again.";
  return `The server answered with status ${response.status}.`;
}

export const get = async (path) => (await request(path)).json();
export const post = async (path, json) => (await request(path, { method: "POST", json })).json();
export const bytes = async (path) => (await request(path)).arrayBuffer();

export async function upload(blob, name) {
  const path = `/page/clips?name=${encodeURIComponent(name)}`;
  const headers = { "Content-Type": "application/octet-stream" };
  return (await request(path, { method: "POST", body: blob, headers })).json();
}

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
    while (next) {
      waiting = null;
      try {
        const result = await work(...next);
        if (!waiting) done(result, ...next);
      } catch (error) {
        if (!waiting) failed(error, ...next);
      }
      next = waiting;
    }
    running = false;
  };
}
