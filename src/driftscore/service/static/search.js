// The tab "Search": words, and the places of an archive that fit them best, to listen to.

import { html, useMemo, useState } from "./vendor/htm-preact.js";
import { post } from "./api.js";
import { Words, useExamples } from "./labels.js";
import { usePlayer } from "./player.js";
import { clock } from "./spectrogram.js";
import { labelsProblem, signed, splitLabels } from "./words.js";

const AROUND_S = 0.5; // that is played before and after a place
const LONGEST_PLAY_S = 60;
const TOP = 50; // places of each word
const FIRST_ROWS = 10;

const nameOf = (place) => place.file.split(/[/\\]/).pop();
const span = (place) => `${clock(place.start_s)} to ${clock(place.end_s)}`;

function Places({ label, places, unit, playing, problems, onPlay }) {
  const [rows, setRows] = useState(FIRST_ROWS);
  const high = Math.max(...places.map(({ score }) => score), 1e-9);
  return html`<section class="card" aria-labelledby=${`found-${label}`}>
    <h2 id=${`found-${label}`}>${label} <small>best ${places.length} places; ${unit === "sd" ? "scores in standard deviations above other sounds" : "scores are cosines"}</small></h2>
    <ol class="event-list places">${places.slice(0, rows).map((place) => html`<li key=${place.key}>
      ${place.playable ? html`<button type="button" class="verdict-button" aria-pressed=${playing === place.key} onClick=${() => onPlay(place)}>
          ${playing === place.key ? "stop" : "play"}<span class="visually-hidden">: ${label}, ${nameOf(place)}, ${span(place)}</span></button>`
        : html`<span class="hint" title="The recording is not on this server">no file</span>`}
      <span class="where" title=${place.file}><strong class="label">${nameOf(place)}</strong> <span class="span">${span(place)}</span>${place.time && html` <span class="span">${place.time.replace("T", " ").slice(0, 19)}</span>`}</span>
      <span class="track"><span class="fill" style=${{ transform: `scaleX(${Math.max(0, place.score / high)})` }}></span></span>
      ${place.precision !== null && html`<span class="score" title="Of this place and the better ones so many are expected to be right, if no other sound of the archive resembles it">${Math.round(100 * place.precision)} % right</span>`}
      <span class="score">score ${signed(place.score.toFixed(unit === "sd" ? 1 : 3))}</span>
      ${problems[place.key] && html`<p class="problem" role="alert">${problems[place.key]}</p>`}</li>`)}</ol>
    ${places.length > rows && html`<button type="button" class="quiet" onClick=${() => setRows(places.length)}>Show ${places.length - rows} more</button>`}
  </section>`;
}

export function Search({ about, hidden }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const [problems, setProblems] = useState({});
  const [busy, setBusy] = useState(false);
  const taught = useExamples(about.limits);
  const player = usePlayer();
  const labels = useMemo(() => splitLabels(text), [text]);
  const search = async () => {
    const trouble = labelsProblem(labels, about.limits);
    setProblem(trouble);
    if (trouble || busy) return;
    player.halt();
    setBusy(true);
    setProblems({});
    try {
      const answer = await post("/page/archive", { ...taught.question(labels), top: TOP });
      const places = answer.places.map((place) => ({ ...place, key: `${place.label} ${place.id} ${place.start_s}` }));
      setFound({ ...answer, places, words: [...new Set(places.map(({ label }) => label))] });
    } catch (error) {
      setFound(null);
      setProblem(error.message);
    }
    setBusy(false);
  };
  const onPlay = (place) => {
    const from = Math.max(0, place.start_s - AROUND_S);
    const query = new URLSearchParams({ start_s: from, seconds: Math.min(LONGEST_PLAY_S, place.end_s + AROUND_S - from) });
    setProblems({});
    player.play(`/page/archive/${place.id}/sound?${query}`, place.key, from, (reason) => setProblems({ [place.key]: reason }));
  };
  if (hidden) return html`<div hidden></div>`;
  return html`<div class="search">
    <p class="lead">Find sounds in the archive <strong>${about.archive}</strong> by words, by recordings of your own, or both.</p>
    <${Words} id="find" text=${text} labels=${labels} taught=${taught} problem=${problem} unclear=${found?.unclear} unlike=${found?.unlike} onText=${setText} onEnter=${search}>
      <div class="row"><button type="button" class="primary" disabled=${busy} onClick=${search}>${busy ? "Searching\u2026" : "Search"}</button>
        <span class="hint" role="status">${found && !busy ? `${found.places.length} places in ${found.windows.toLocaleString("en")} windows` : ""}</span></div>
    <//>
    ${found?.words.map((label) => html`<${Places} key=${label} label=${label} unit=${found.unit} places=${found.places.filter((place) => place.label === label)}
      playing=${player.what} problems=${problems} onPlay=${onPlay} />`)}
  </div>`;
}
