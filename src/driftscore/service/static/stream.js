// Server-sent events, read with fetch: EventSource cannot send the token.

import { open } from "./api.js";

const SILENCE_MS = 40000; // the server sends a comment every 15 s
const LONGEST_WAIT_S = 30;

function parsed(block) {
  const found = { event: "message", data: [] };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") found.data.push(value);
    else if (name === "event" || name === "id") found[name] = value;
  }
  return { ...found, data: found.data.join("\n") };
}

async function* blocks(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest += value.replaceAll("\r\n", "\n");
    const parts = rest.split("\n\n");
    rest = parts.pop();
    yield* parts;
  }
}

// Follows a stream until the returned function is called. After a failure it connects again, first
// after a second, then less and less often; `onLost` gets the reason as a sentence.
export function follow(path, { onOpen, onMessage, onLost }) {
  let stopped = false;
  let current = null;
  let last = null;
  let wait = 1;
  let timer = 0;
  const connect = async () => {
    current = new AbortController();
    let watch = 0;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => current.abort(), SILENCE_MS);
    };
    let why = "The server has ended the connection.";
    try {
      alive();
      const response = await open(path, { signal: current.signal, headers: last === null ? {} : { "Last-Event-ID": last } });
      wait = 1;
      onOpen();
      for await (const block of blocks(response.body, alive)) {
        const message = parsed(block);
        if (message.id !== undefined) last = message.id;
        if (message.event === "problem") why = JSON.parse(message.data).error;
        else if (message.data) onMessage(message.event, JSON.parse(message.data));
      }
    } catch (error) {
      if (error.name === "ServerError") why = error.message;
      else why = "The server does not answer. Is driftscore serve still running?";
    }
    clearTimeout(watch);
    if (stopped) return;
    onLost(why);
    timer = setTimeout(connect, 1000 * wait);
    wait = Math.min(LONGEST_WAIT_S, 2 * wait);
  };
  connect();
  return () => {
    stopped = true;
    clearTimeout(timer);
    current?.abort();
  };
}
