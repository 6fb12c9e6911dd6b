// The tab "Live": sources, the events of a day with a verdict on each, and when they happened.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, post } from "./api.js";
import { usePlayer } from "./player.js";
import { follow } from "./stream.js";
import { signed } from "./words.js";

const POLL_S = 4; // while the stream is not connected
const REFRESH_S = 30; // while it is: recent labels end, and so does the day
const TOGETHER_MS = 250; // events that come together are read together
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const time = (iso) => iso.slice(11, 19); // the clock of the place, as it was recorded
const PLACES = [["label", "word", "words"], ["source", "source", "names"]]; // what events are filtered by
const START = `driftscore listen yard=mic --labels "siren, dog bark" --store events.db
driftscore serve --store events.db`;
const two = (value) => String(value).padStart(2, "0");

// Levels come once per interval: a source without one for three intervals has gone without a word.
function silence(source, now) {
  if (!source.online || !source.level) return "";
  const late = (now - Date.parse(source.level.end)) / 1000 > 3 * source.level.seconds + 15;
  return late ? `no report since ${time(source.level.end).slice(0, 5)}: has the listener stopped?` : "";
}

function Level({ level }) {
  if (!level) return html`<p class="level"><span class="hint">no level yet</span></p><p class="hint">\u00a0</p>`;
  const [laeq, l10, l90] = [level.laeq, level.l10, level.l90].map((value) => signed(value.toFixed(0)));
  const span = level.seconds === 60 ? "minute" : `${level.seconds.toFixed(0)} s`;
  return html`<p class="level" title=${`Levels of the ${span} that ended at ${time(level.end)}: LAeq is the level of the mean power; L10 and L90 are exceeded for 10 % and for 90 % of the time.`}>
    <strong>${laeq}</strong> ${level.unit}</p>
    <p class="hint">LAeq of the ${span} to ${time(level.end).slice(0, 5)} <span class="together">\u00b7 L10 ${l10}</span> <span class="together">\u00b7 L90 ${l90}</span></p>`;
}

// The level of the day, from midnight to midnight.
function Curve({ levels, unit }) {
  if (levels.length < 2) return null;
  const [low, high] = [Math.min, Math.max].map((of) => of(...levels.map(([, level]) => level)));
  const y = (level) => 34 - (30 * (level - low)) / (high - low || 1);
  const [first, last] = [low, high].map((level) => signed(level.toFixed(0)));
  return html`<figure class="curve"><svg viewBox="0 0 240 38" preserveAspectRatio="none" role="img"
      aria-label=${`Level from ${first} to ${last} ${unit} over the day`}><polyline points=${levels.map(([hour, level]) => `${(10 * hour).toFixed(1)},${y(level).toFixed(1)}`).join(" ")} /></svg>
    <figcaption><span>0 h</span><span>level, ${first} to ${last} ${unit}</span><span>24 h</span></figcaption></figure>`;
}

function Source({ source, now }) {
  const quiet = silence(source, now);
  const recent = source.recent.filter(({ label }) => !source.present.includes(label));
  const state = quiet || `${source.online ? "running" : source.why || "stopped"} since ${time(source.since).slice(0, 5)}`;
  return html`<li>
    <p class="title"><span class=${`state ${source.online && !quiet ? "on" : "off"}`} aria-hidden="true"></span><strong>${source.name}</strong></p>
    <p class=${quiet ? "problem" : "hint"}>${state}</p>
    <${Level} level=${source.level} />
    <${Curve} levels=${source.levels} unit=${source.level?.unit ?? ""} />
    <p class="now">${source.present.map((label) => html`<span key=${label} class="tag present">${label} <small>now</small></span>`)}
      ${recent.map(({ label, score, time: begun }) => html`<span key=${label} class="tag">${label} <small>score ${score.toFixed(1)} at ${time(begun)}</small></span>`)}
      ${source.present.length + recent.length === 0 && html`<span class="hint">${source.last ? `last: ${source.last.label} at ${time(source.last.start).slice(0, 5)}` : "no event on this day"}</span>`}</p>
    <p class="hint looks" title=${source.words}>${source.words && `looks for ${source.words}`}</p>
  </li>`;
}

function Sources({ sources, now, link }) {
  return html`<section class="card" aria-labelledby="sources-title"><h2 id="sources-title">Sources</h2>
    <p class=${`link ${link.connected ? "hint" : "problem"}`} role="status">${link.text}</p>
    ${sources.length === 0 ? html`<p class="hint">The listener has no source yet.</p>`
      : html`<ul class="sources">${sources.map((source) => html`<${Source} key=${source.name} source=${source} now=${now} />`)}</ul>`}</section>`;
}

function Heatmap({ hours, hour }) {
  const labels = Object.keys(hours);
  const most = Math.max(1, ...labels.flatMap((label) => hours[label]));
  const box = useRef();
  useLayoutEffect(() => { // on a phone, where not all hours fit
    const cell = box.current?.querySelector(`thead th:nth-child(${hour + 2})`);
    if (cell) box.current.scrollLeft = cell.offsetLeft + cell.offsetWidth - box.current.clientWidth;
  }, [labels.length, hour]);
  return html`<section class="card" aria-labelledby="hours-title"><h2 id="hours-title">By hour <small>number of events</small></h2>
    ${labels.length === 0 ? html`<p class="hint">No event on this day.</p>` : html`
    <div class="scrolls" ref=${box} tabindex="0" role="region" aria-label="Events by hour"><table class="hours">
      <thead><tr><th scope="col">word</th>${HOURS.map((h) => html`<th scope="col" key=${h} class=${h === hour ? "now" : ""}>${h % 3 ? html`<span class="visually-hidden">${two(h)}</span>` : two(h)}</th>`)}</tr></thead>
      <tbody>${labels.map((label) => html`<tr key=${label}><th scope="row">${label}</th>
        ${hours[label].map((count, h) => html`<td key=${h} class=${count > most / 2 ? "much" : ""} title=${`${label}, ${two(h)}:00 to ${two(h + 1)}:00: ${count}`}
          style=${{ "--share": count ? `${Math.round(15 + (85 * count) / most)}%` : "0%" }}>${count || html`<span class="visually-hidden">0</span>`}</td>`)}</tr>`)}</tbody>
    </table></div>`}</section>`;
}

// Which day is shown, and which of its events.
function Choice({ view, onQuery }) {
  const yesterday = new Date(`${view.today}T12:00:00Z`);
  yesterday.setUTCDate(yesterday.getUTCDate() - 1);
  const days = [["Today", view.today], ["Yesterday", yesterday.toISOString().slice(0, 10)]];
  return html`<div class="choice row">
    ${days.map(([name, day]) => html`<button key=${name} type="button" class="quiet" aria-pressed=${view.day === day} onClick=${() => onQuery({ day: day === view.today ? "" : day })}>${name}</button>`)}
    <label>Day <input type="date" value=${view.day} max=${view.today} onChange=${(event) => { if (event.target.value) onQuery({ day: event.target.value === view.today ? "" : event.target.value }); }} /></label>
    ${PLACES.map(([name, title, values]) => html`<label key=${name}>${title} <select value=${view.query[name] ?? ""} onChange=${(event) => onQuery({ [name]: event.target.value })}>
      <option value="">all</option>${view[values].map((value) => html`<option key=${value} value=${value}>${value}</option>`)}</select></label>`)}
  </div>`;
}

function EventRow({ event, current, playable, playing, problem, onVerdict, onPlay, onFocus, row }) {
  const button = (verdict, key) => html`<button type="button" class=${`verdict-button ${verdict}`} tabindex="-1" aria-pressed=${event.verdict === verdict}
    onClick=${() => onVerdict(event, event.verdict === verdict ? "" : verdict)}>${verdict}<span class="visually-hidden">: ${event.label} at ${time(event.start)}</span> <kbd aria-hidden="true">${key}</kbd></button>`;
  return html`<li ref=${row} class=${event.verdict} tabindex=${current ? 0 : -1} onfocusin=${onFocus} onClick=${onFocus} aria-current=${current}
      aria-label=${`${event.label} at ${time(event.start)}, ${event.source}, ${event.verdict || "no verdict"}`}>
    <time datetime=${event.start}>${time(event.start)}</time>
    <span class="label">${event.label}</span>
    <span class="facts">${event.duration_s.toFixed(1)} s \u00b7 ${event.source} \u00b7 score ${event.score.toFixed(1)}${event.snr_db === null ? "" : ` \u00b7 ${signed(event.snr_db.toFixed(0))} dB SNR`}</span>
    <span class="buttons">${playable && event.clip && html`<button type="button" class="verdict-button" tabindex="-1" aria-pressed=${playing} onClick=${() => onPlay(event)}>
      ${playing ? "stop" : "play"}<span class="visually-hidden">: ${event.label} at ${time(event.start)}</span> <kbd aria-hidden="true">P</kbd></button>`}${button("right", "R")}${button("wrong", "W")}</span>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  </li>`;
}

const TYPING = "input, textarea, select, [contenteditable]";

function Review({ view, playing, onVerdict, onPlay, onQuery, problems }) {
  const { events, count, clips: playable } = view;
  const [chosen, setChosen] = useState(null);
  const rows = useRef({});
  const undone = useRef([]); // verdicts that were given, the last one last
  const place = Math.max(0, events.findIndex(({ id }) => id === chosen));
  const go = (next) => {
    const event = events[Math.max(0, Math.min(events.length - 1, next))];
    if (!event) return;
    setChosen(event.id);
    rows.current[event.id]?.focus();
  };
  const give = (event, verdict) => {
    undone.current.push({ id: event.id, verdict: event.verdict });
    onVerdict(event, verdict);
  };
  const undo = () => {
    const before = undone.current.pop();
    const index = events.findIndex(({ id }) => id === before?.id);
    if (index < 0) return;
    onVerdict(events[index], before.verdict);
    go(index);
  };
  const typed = (key) => {
    if (key.ctrlKey || key.metaKey || key.altKey || !events.length) return;
    const event = events[place];
    const actions = {
      j: () => go(place + 1), ArrowDown: () => go(place + 1), k: () => go(place - 1), ArrowUp: () => go(place - 1),
      r: () => { give(event, "right"); go(place + 1); },
      w: () => { give(event, "wrong"); go(place + 1); },
      u: undo,
      p: () => { if (playable && event.clip) onPlay(event); },
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
      if (inList || (key.key.length === 1 && !key.target.closest?.(TYPING))) latest.current(key);
    };
    document.addEventListener("keydown", anywhere);
    return () => document.removeEventListener("keydown", anywhere);
  }, []);
  const done = events.filter(({ verdict }) => verdict).length;
  return html`<section class="card" aria-labelledby="review-title">
    <h2 id="review-title">${view.day === view.today ? "Today" : view.day} <small>${events.length ? `${done} of ${events.length} reviewed${count > events.length ? `; the latest of ${count} events` : ""}` : ""}</small></h2>
    <${Choice} view=${view} onQuery=${onQuery} />
    <p class="hint">Mark the events as right or wrong; <code>driftscore review</code> fits thresholds to the verdicts.${" "}
      <span class="keys">Keys: <kbd>R</kbd> right, <kbd>W</kbd> wrong, <kbd>U</kbd> undo, ${playable && html`<kbd>P</kbd> play, `}<kbd>J</kbd> and <kbd>K</kbd> next and previous.</span></p>
    ${events.length === 0 ? html`<p class="empty-list">${view.query.label || view.query.source ? "No such event on this day." : view.day === view.today ? "No event yet today. They appear here as they happen." : "No event on this day."}</p>`
      : html`<ol class="events">${events.map((event, i) => html`<${EventRow} key=${event.id} event=${event} current=${i === place}
        playable=${playable} playing=${playing === event.id} problem=${problems[event.id]} onVerdict=${give} onPlay=${onPlay} onFocus=${() => setChosen(event.id)} row=${(node) => { rows.current[event.id] = node; }} />`)}</ol>`}
  </section>`;
}

export function Live({ hidden }) {
  const [view, setView] = useState(null);
  const [problem, setProblem] = useState("");
  const [problems, setProblems] = useState({});
  const verdicts = useRef(0); // rises when one is sent and when it is answered
  const query = useRef({}); // day, label and source, if they are chosen
  const load = async () => {
    const before = verdicts.current;
    try {
      const asked = query.current;
      const found = await get(`/page/live?${new URLSearchParams(asked)}`);
      if (verdicts.current !== before || query.current !== asked) return load(); // it may be older than a verdict
      setView({ ...found, query: asked, ahead: Date.parse(found.now) - Date.now() });
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
    return undefined;
  };
  const [link, setLink] = useState({ connected: false, text: "Connecting\u2026" });
  useEffect(() => {
    if (hidden) return undefined;
    let due = 0;
    const soon = () => {
      clearTimeout(due);
      due = setTimeout(load, TOGETHER_MS);
    };
    const changed = (source) => setView((old) => {
      if (!old?.available) return old;
      if (!old.sources.some(({ name }) => name === source.name)) soon();
      return { ...old, sources: old.sources.map((one) => (one.name === source.name ? { ...one, ...source } : one)) };
    });
    load();
    const stop = follow("/v1/events/stream", {
      onOpen: () => {
        setLink({ connected: true, text: "Connected: changes appear here as they happen." });
        soon();
      },
      onMessage: (kind, data) => (kind === "source" ? changed(data) : soon()),
      onLost: (why) => setLink((old) => ({
        connected: false,
        text: `${old.connected ? `Disconnected at ${new Date().toTimeString().slice(0, 8)}. ` : ""}${why} Trying again, and asking every ${POLL_S} s meanwhile.`,
      })),
    });
    return () => {
      clearTimeout(due);
      stop();
    };
  }, [hidden]);
  useEffect(() => {
    if (hidden) return undefined;
    const timer = setInterval(() => { if (!document.hidden) load(); }, 1000 * (link.connected ? REFRESH_S : POLL_S));
    return () => clearInterval(timer);
  }, [hidden, link.connected]);
  const onQuery = (changes) => {
    query.current = Object.fromEntries(Object.entries({ ...query.current, ...changes }).filter(([, value]) => value));
    load();
  };
  const mark = (id, verdict) => setView((old) => ({ ...old, events: old.events.map((event) => (event.id === id ? { ...event, verdict } : event)) }));
  const onVerdict = async (event, verdict) => {
    verdicts.current += 1;
    mark(event.id, verdict);
    setProblems((old) => ({ ...old, [event.id]: "" }));
    try {
      await post(`/page/live/events/${encodeURIComponent(event.id)}/review`, { verdict });
    } catch (error) {
      mark(event.id, event.verdict);
      setProblems((old) => ({ ...old, [event.id]: `The verdict was not saved: ${error.message}` }));
    }
    verdicts.current += 1;
  };
  const player = usePlayer();
  const onPlay = (event) => {
    const said = (text) => setProblems((old) => ({ ...old, [event.id]: text }));
    said("");
    player.play(`/page/live/events/${encodeURIComponent(event.id)}/clip`, event.id, 0, (reason) => said(`The clip cannot be played: ${reason}`));
  };
  useEffect(() => { if (hidden) player.halt(); }, [hidden]);
  if (hidden) return html`<div hidden></div>`;
  if (!view) return html`<div class="live"><p class="notice" role="alert">${problem || "Loading\u2026"}</p></div>`;
  if (!view.available) {
    return html`<div class="live"><section class="card blank"><h2>No listener yet</h2>
      <p>This tab shows what a listener finds: its sources, the events of a day, and when they happened. Start one, and give its store to the service:</p>
      <pre><code>${START}</code></pre></section></div>`;
  }
  return html`<div class="live">
    <${Sources} sources=${view.sources} now=${Date.now() + view.ahead} link=${problem && link.connected ? { connected: false, text: problem } : link} /><${Heatmap} hours=${view.hours} hour=${view.day === view.today ? Number(view.now.slice(11, 13)) : -1} />
    <${Review} view=${view} playing=${player.what} onVerdict=${onVerdict} onPlay=${onPlay} onQuery=${onQuery} problems=${problems} /></div>`;
}
