// The tab "Live": sources, today's events with a verdict on each, and when they happened.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, post } from "./api.js";
import { signed } from "./words.js";

const EVERY_MS = 4000;
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const time = (iso) => iso.slice(11, 19); // the clock of the place, as it was recorded
const two = (value) => String(value).padStart(2, "0");

function Sources({ sources }) {
  return html`<section class="card" aria-labelledby="sources-title"><h2 id="sources-title">Sources</h2>
    ${sources.length === 0 ? html`<p class="hint">The listener has no source yet.</p>` : html`<ul class="sources">${sources.map((source) => html`<li key=${source.name}>
      <p class="title"><span class=${`state ${source.online ? "on" : "off"}`} aria-hidden="true"></span><strong>${source.name}</strong>${" "}
        <span class="hint">${source.online ? "running" : source.why || "stopped"} since ${time(source.since).slice(0, 5)}</span></p>
      <p class="now">${source.labels.length ? source.labels.map(([label, score]) => html`<span key=${label} class="tag">${label} <small>${score.toFixed(1)}</small></span>`)
        : html`<span class="hint">${source.last ? `last: ${source.last.label} at ${time(source.last.start).slice(0, 5)}` : "no event yet today"}</span>`}</p>
      <p class="hint looks">${source.words && `looks for ${source.words}`}</p>
    </li>`)}</ul>`}</section>`;
}

function Heatmap({ hours }) {
  const labels = Object.keys(hours);
  const most = Math.max(1, ...labels.flatMap((label) => hours[label]));
  return html`<section class="card" aria-labelledby="hours-title"><h2 id="hours-title">By hour <small>events today</small></h2>
    ${labels.length === 0 ? html`<p class="hint">No event yet today.</p>` : html`
    <div class="scrolls" tabindex="0" role="region" aria-label="Events by hour"><table class="hours">
      <thead><tr><th scope="col">label</th>${HOURS.map((hour) => html`<th scope="col" key=${hour}>${hour % 3 ? html`<span class="visually-hidden">${two(hour)}</span>` : two(hour)}</th>`)}</tr></thead>
      <tbody>${labels.map((label) => html`<tr key=${label}><th scope="row">${label}</th>
        ${hours[label].map((count, hour) => html`<td key=${hour} class=${count > most / 2 ? "much" : ""} title=${`${label}, ${two(hour)}:00 to ${two(hour + 1)}:00: ${count}`}
          style=${{ "--share": count ? `${Math.round(15 + (85 * count) / most)}%` : "0%" }}>${count || html`<span class="visually-hidden">0</span>`}</td>`)}</tr>`)}</tbody>
    </table></div>`}</section>`;
}

function EventRow({ event, current, problem, onVerdict, onFocus, row }) {
  const button = (verdict, key) => html`<button type="button" class=${`verdict-button ${verdict}`} tabindex="-1" aria-pressed=${event.verdict === verdict}
    onClick=${() => onVerdict(event, event.verdict === verdict ? "" : verdict)}>${verdict}<span class="visually-hidden">: ${event.label} at ${time(event.start)}</span> <kbd aria-hidden="true">${key}</kbd></button>`;
  return html`<li ref=${row} class=${event.verdict} tabindex=${current ? 0 : -1} onFocus=${onFocus} aria-current=${current}
      aria-label=${`${event.label} at ${time(event.start)}, ${event.source}, ${event.verdict || "no verdict"}`}>
    <time datetime=${event.start}>${time(event.start)}</time>
    <span class="label">${event.label}</span>
    <span class="facts">${event.duration_s.toFixed(1)} s \u00b7 ${event.source} \u00b7 score ${event.score.toFixed(1)}${event.snr_db === null ? "" : ` \u00b7 ${signed(event.snr_db.toFixed(0))} dB SNR`}</span>
    <span class="buttons">${button("right", "R")}${button("wrong", "W")}</span>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  </li>`;
}

function Review({ events, onVerdict, problems }) {
  const [chosen, setChosen] = useState(null);
  const rows = useRef({});
  const place = Math.max(0, events.findIndex(({ id }) => id === chosen));
  const go = (next) => {
    const event = events[Math.max(0, Math.min(events.length - 1, next))];
    if (!event) return;
    setChosen(event.id);
    rows.current[event.id]?.focus();
  };
  const typed = (key) => {
    if (key.ctrlKey || key.metaKey || key.altKey || !events.length) return;
    const event = events[place];
    const actions = {
      j: () => go(place + 1), ArrowDown: () => go(place + 1), k: () => go(place - 1), ArrowUp: () => go(place - 1),
      r: () => { onVerdict(event, "right"); go(place + 1); },
      w: () => { onVerdict(event, "wrong"); go(place + 1); },
      u: () => onVerdict(event, ""),
    };
    const action = actions[key.key.length === 1 ? key.key.toLowerCase() : key.key];
    if (!action) return;
    key.preventDefault();
    action();
  };
  const latest = useRef(typed);
  latest.current = typed;
  useEffect(() => {
    const anywhere = (key) => {
      const inList = key.target.closest?.(".events");
      if (inList || (key.target === document.body && key.key.length === 1)) latest.current(key);
    };
    document.addEventListener("keydown", anywhere);
    return () => document.removeEventListener("keydown", anywhere);
  }, []);
  const done = events.filter(({ verdict }) => verdict).length;
  return html`<section class="card" aria-labelledby="review-title">
    <h2 id="review-title">Today <small>${events.length ? `${done} of ${events.length} reviewed` : ""}</small></h2>
    <p class="hint">Say which events are right: thresholds follow from the verdicts.${" "}
      <span class="keys">Keys: <kbd>R</kbd> right, <kbd>W</kbd> wrong, <kbd>U</kbd> undo, <kbd>J</kbd> and <kbd>K</kbd> next and previous.</span></p>
    ${events.length === 0 ? html`<p class="empty-list">No event yet today. They appear here as they happen.</p>`
      : html`<ol class="events">${events.map((event, i) => html`<${EventRow} key=${event.id} event=${event} current=${i === place}
        problem=${problems[event.id]} onVerdict=${onVerdict} onFocus=${() => setChosen(event.id)} row=${(node) => { rows.current[event.id] = node; }} />`)}</ol>`}
  </section>`;
}

export function Live({ hidden }) {
  const [view, setView] = useState(null);
  const [problem, setProblem] = useState("");
  const [problems, setProblems] = useState({});
  const load = async () => {
    try {
      setView(await get("/page/live"));
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  useEffect(() => {
    if (hidden) return undefined;
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, EVERY_MS);
    return () => clearInterval(timer);
  }, [hidden]);
  const mark = (id, verdict) => setView((old) => ({ ...old, events: old.events.map((event) => (event.id === id ? { ...event, verdict } : event)) }));
  const onVerdict = async (event, verdict) => {
    mark(event.id, verdict);
    setProblems((old) => ({ ...old, [event.id]: "" }));
    try {
      await post(`/page/live/events/${encodeURIComponent(event.id)}/review`, { verdict });
    } catch (error) {
      mark(event.id, event.verdict);
      setProblems((old) => ({ ...old, [event.id]: `The verdict was not saved: ${error.message}` }));
    }
  };
  if (hidden) return html`<div hidden></div>`;
  if (!view) return html`<div class="live"><p class="notice" role="alert">${problem || "Loading\u2026"}</p></div>`;
  if (!view.available) {
    return html`<div class="live"><section class="card blank"><h2>No listener yet</h2>
      <p>This tab shows what a listener finds: its sources, today's events, and when they happened. Start one, and give its store to the service:</p>
      <pre><code>${view.commands.join("\n")}</code></pre></section></div>`;
  }
  return html`<div class="live"><p class="problem" role="alert">${problem}</p>
    <${Sources} sources=${view.sources} /><${Heatmap} hours=${view.hours} />
    <${Review} events=${view.events} onVerdict=${onVerdict} problems=${problems} /></div>`;
}
