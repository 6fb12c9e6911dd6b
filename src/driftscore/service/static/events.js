// The events of a recording: bars over its spectrogram, and a list to play, answer and export them.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { clock } from "./spectrogram.js";

const LANES = 6;
const LANE_PX = 22;
const SIGN_PX = 7.2; // the width of a letter, about
const FIRST_ROWS = 100;

export const keyOf = (event) => `${event.label} ${event.start_s.toFixed(2)}`;
const span = (event) => `${clock(event.start_s)} to ${clock(event.end_s)}`;

function useWidth(node) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(node.current.clientWidth));
    watch.observe(node.current);
    return () => watch.disconnect();
  }, []);
  return width;
}

// Where the name of each bar of a lane goes: in it, right or left of it, or nowhere if there is no room.
function named(bars, width) {
  let taken = 0; // pixels that are used from the left
  return bars.map((bar, i) => {
    const text = bar.event.label.length * SIGN_PX + 16;
    const next = i + 1 < bars.length ? bars[i + 1].left : width;
    const side = bar.width >= text ? "in" : bar.left + bar.width + text <= next ? "right" : bar.left - text >= taken ? "left" : "";
    taken = bar.left + bar.width + (side === "right" ? text : 0);
    return { ...bar, side };
  });
}

export function EventBars({ events, seconds, at, onPick }) {
  const node = useRef();
  const width = useWidth(node);
  const labels = [...new Set(events.map((event) => event.label))];
  const lanes = Array.from({ length: LANES }, () => []);
  for (const event of events) {
    const left = (width * event.start_s) / seconds;
    lanes[labels.indexOf(event.label) % LANES].push({ event, left, width: Math.max(4, (width * event.end_s) / seconds - left) });
  }
  return html`<div class="bars" ref=${node}>
    ${lanes.flatMap((bars, lane) => named(bars, width).map(({ event, left, width: wide, side }) => {
      const now = at !== null && at >= event.start_s && at <= event.end_s;
      return html`<button key=${keyOf(event)} type="button" class=${`bar ${side} ${now ? "now" : ""}`} title=${`${event.label}, ${span(event)}`}
        style=${{ left: `${left}px`, width: `${wide}px`, top: `${6 + LANE_PX * lane}px` }}
        aria-label=${`${event.label}, ${span(event)}, score ${event.score.toFixed(1)}: show this part`}
        onClick=${(click) => { click.stopPropagation(); onPick(event); }}>${side && html`<span>${event.label}</span>`}</button>`;
    }))}
  </div>`;
}

export function EventList({ events, playing, problems, onPlay, onVerdict, onPick }) {
  const [rows, setRows] = useState(FIRST_ROWS);
  const answer = (event, verdict) => html`<button type="button" class=${`verdict-button ${verdict}`} aria-pressed=${event.verdict === verdict}
    onClick=${() => onVerdict(event, event.verdict === verdict ? "" : verdict)}>${verdict}<span class="visually-hidden">: ${event.label}, ${span(event)}</span></button>`;
  return html`<ol class="event-list">${events.slice(0, rows).map((event) => html`<li key=${keyOf(event)} class=${event.verdict}>
      <button type="button" class="verdict-button" aria-pressed=${playing === keyOf(event)} onClick=${() => onPlay(event)}>
        ${playing === keyOf(event) ? "stop" : "play"}<span class="visually-hidden">: ${event.label}, ${span(event)}</span></button>
      <button type="button" class="place" onClick=${() => onPick(event)}><span class="span">${span(event)}</span> <strong class="label">${event.label}</strong></button>
      <span class="score">score ${event.score.toFixed(1)}</span>
      <span class="buttons">${answer(event, "right")}${answer(event, "wrong")}</span>
      ${problems[keyOf(event)] && html`<p class="problem" role="alert">${problems[keyOf(event)]}</p>`}</li>`)}
    ${events.length > rows && html`<li><button type="button" class="quiet" onClick=${() => setRows(rows + 10 * FIRST_ROWS)}>Show ${events.length - rows} more</button></li>`}</ol>`;
}
