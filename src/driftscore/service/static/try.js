// The tab "Try": a sound, words, noise, and what three rules make of it.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { ServerError, bytes, newest, post, upload } from "./api.js";
import { Charts } from "./chart.js";
import { writeLink } from "./link.js";
import { Noise } from "./noise.js";
import { Rankings } from "./rankings.js";
import { Sound } from "./sound.js";
import { EventBars, Spectrogram, clock } from "./spectrogram.js";
import { Why } from "./why.js";
import { labelsProblem, megabytes, splitLabels, verdicts } from "./words.js";

const WAIT_MS = 300;

// Returns a value that follows another one after it has stopped changing.
function useSettled(value, wait = WAIT_MS) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), wait);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

// Calls the server with the newest arguments; returns its last answer and what went wrong.
function useAnswer(path, asked, ready) {
  const [state, setState] = useState({ answer: null, problem: "", busy: false });
  const run = useMemo(() => newest(
    (where, body) => post(where, body),
    (answer) => setState({ answer, problem: "", busy: false }),
    (error) => setState((old) => ({ ...old, problem: error.message, status: error.status, busy: false })),
  ), []);
  useEffect(() => {
    if (!ready) return;
    setState((old) => ({ ...old, busy: true }));
    run(path, asked);
  }, [path, JSON.stringify(asked), ready]);
  const forget = () => setState({ answer: null, problem: "", busy: false });
  return [state, forget];
}

function usePlayer() {
  const [at, setAt] = useState(null); // seconds since the start of the part, null if nothing plays
  const stop = useRef(null);
  const halt = () => {
    stop.current?.();
    stop.current = null;
    setAt(null);
  };
  const play = async (path) => {
    halt();
    const context = new AudioContext();
    const buffer = await context.decodeAudioData(await bytes(path));
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    source.onended = halt;
    source.start();
    const begun = context.currentTime;
    let frame = requestAnimationFrame(function tick() {
      setAt(Math.min(buffer.duration, context.currentTime - begun));
      frame = requestAnimationFrame(tick);
    });
    stop.current = () => {
      source.onended = null;
      cancelAnimationFrame(frame);
      context.close();
    };
  };
  useEffect(() => halt, []);
  return { at, play, halt };
}

function Words({ text, count, problem, onText }) {
  return html`<section class="card words" aria-labelledby="words-title">
    <h2 id="words-title"><label for="words">Words</label></h2>
    <textarea id="words" rows="2" spellcheck="false" autocomplete="off" aria-describedby="words-problem" aria-invalid=${problem !== ""}
      placeholder="siren, dog bark, rain" value=${text} onInput=${(event) => onText(event.target.value)}></textarea>
    <p class="hint">Any sounds, separated by commas${count > 1 ? html` \u00b7 ${count} labels` : ""}</p>
    <p class="problem" id="words-problem" role="alert">${problem}</p>
  </section>`;
}

function Link() {
  const [done, setDone] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setDone("Link copied");
    } catch {
      setDone("Copy the address of this page");
    }
    setTimeout(() => setDone(""), 2500);
  };
  return html`<button type="button" class="quiet copy" onClick=${copy}><span aria-live="polite">${done || "Copy link"}</span></button>`;
}

function EventList({ events }) {
  if (!events.length) return html`<p class="hint">No event: none of the words stands out anywhere.</p>`;
  return html`<ol class="event-list">${events.slice(0, 24).map((event) => html`<li key=${`${event.label}${event.start_s}`}>
    <span class="span">${clock(event.start_s)} to ${clock(event.end_s)}</span> ${event.label} <span class="score">${event.score.toFixed(1)}</span></li>`)}
    ${events.length > 24 && html`<li class="hint">and ${events.length - 24} more</li>`}</ol>`;
}

export function Try({ about, link, hidden }) {
  const [clip, setClip] = useState(null);
  const [start, setStart] = useState(0);
  const [text, setText] = useState(link.labels || "");
  const [noise, setNoise] = useState(about.noises.includes(link.noise) ? link.noise : about.noises[0]);
  const [own, setOwn] = useState(null);
  const [snr, setSnr] = useState(link.snr);
  const [right, setRight] = useState(link.right);
  const [example, setExample] = useState(link.example);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState({ sound: "", noise: "" });
  const player = usePlayer();

  const labels = useMemo(() => splitLabels(text), [text]);
  const trouble = labelsProblem(labels, about.limits);
  const settledText = useSettled(text);
  const asked = useMemo(() => splitLabels(settledText), [settledText]);
  const ready = clip !== null && labelsProblem(asked, about.limits) === "";
  const long = clip !== null && clip.seconds > about.window_s + 0.05;
  const mix = { noise: noise === "own" ? `clip:${own?.id}` : noise, snr_db: snr };
  const settledMix = useSettled(JSON.stringify(mix));
  const counted = asked.includes(right) ? right : "";
  const at = clip ? `/page/clips/${clip.id}` : "";
  const [ranking, dropRanking] = useAnswer(`${at}/rank`, { labels: asked, start_s: start, ...mix }, ready);
  const [swept, dropSweep] = useAnswer(`${at}/sweep`, { labels: asked, start_s: start, noise: mix.noise, right: counted }, ready);
  const [overview, dropOverview] = useAnswer(`${at}/events`, { labels: asked, ...JSON.parse(settledMix) }, ready && long);
  const answer = clip && ranking.answer;
  const same = answer && swept.answer && swept.answer.labels.join() === answer.labels.join();
  const sweep = same ? swept.answer : null;
  const downTo = useMemo(() => (sweep ? verdicts(sweep) : null), [sweep]);
  const truth = counted || sweep?.right || "";

  useEffect(() => {
    if (hidden) return;
    writeLink({ labels: labels.join(", "), noise: noise === "own" ? "" : noise, snr, right: counted, example });
  }, [text, noise, snr, counted, example, hidden]);

  const take = async (blob, name, changes = {}) => {
    player.halt();
    setProblem((old) => ({ ...old, sound: "" }));
    if (blob.size > about.limits.bytes) {
      const sizes = `${name} has ${megabytes(blob.size)}; the server takes ${megabytes(about.limits.bytes)}.`;
      setProblem((old) => ({ ...old, sound: `${sizes} Give a shorter recording, or a compressed one.` }));
      return;
    }
    setBusy(true);
    try {
      const found = await upload(blob);
      dropRanking();
      dropSweep();
      dropOverview();
      setClip({ ...found, name });
      setStart(found.start_s);
      setExample(changes.example ?? "");
      if (changes.labels) setText(changes.labels);
      if (changes.noise) setNoise(changes.noise);
      setRight(changes.right ?? "");
    } catch (error) {
      setProblem((old) => ({ ...old, sound: error.message }));
    }
    setBusy(false);
  };
  const takeExample = async (one, kept = {}) => {
    try {
      const sound = await (await fetch(one.url)).blob();
      await take(sound, one.url.split("/").pop(), { labels: one.labels, noise: one.noise, example: one.name, ...kept });
    } catch {
      setProblem((old) => ({ ...old, sound: "The example cannot be read: the server does not answer." }));
    }
  };
  useEffect(() => {
    const one = about.examples.find(({ name }) => name === link.example);
    if (one) takeExample(one, { labels: link.labels || one.labels, noise: link.noise || one.noise, right: link.right });
  }, []);
  const takeNoise = async (file) => {
    setProblem((old) => ({ ...old, noise: "" }));
    try {
      const found = await upload(file);
      setOwn({ id: found.id, name: file.name });
      setNoise("own");
    } catch (error) {
      setProblem((old) => ({ ...old, noise: error.message }));
    }
  };
  const play = async () => {
    if (player.at !== null) {
      player.halt();
      return;
    }
    const query = new URLSearchParams({ start_s: start, noise: mix.noise, ...(snr === null ? {} : { snr_db: snr }) });
    try {
      await player.play(`${at}/sound?${query}`);
    } catch (error) {
      setProblem((old) => ({ ...old, sound: error instanceof ServerError ? error.message : "The browser cannot play it." }));
    }
  };
  const ranges = useMemo(() => {
    const rows = (rule) => (sweep ? sweep.rules[rule].flat() : []).concat(answer ? answer.rules[rule] : []);
    return Object.fromEntries(about.rules.map(({ name }) => {
      const values = rows(name);
      return [name, [Math.min(...values), Math.max(...values)]];
    }));
  }, [sweep, answer]);
  const reading = ranking.busy && answer?.labels.join() !== asked.join();
  const empty = "Choose a file, record one, or press an example: its spectrogram appears here.";
  const unanswered = ranking.problem || swept.problem;
  return html`
    <div class="try" hidden=${hidden}>
      <div class="inputs">
        <${Sound} examples=${about.examples} clip=${clip} busy=${busy} problem=${problem.sound} playing=${player.at !== null}
          onSound=${take} onExample=${takeExample} onPlay=${play} />
        <${Words} text=${text} count=${labels.length} problem=${clip || text ? trouble : ""} onText=${setText} />
      </div>
      ${long && html`<section class="card" aria-labelledby="events-title">
        <h2 id="events-title">Events <small>the complete recording; click to choose the part that is ranked below</small></h2>
        <${Spectrogram} picture=${overview.answer?.spectrogram ?? clip.overview} name=${clip.name}
            onPick=${(seconds) => setStart(Math.max(0, Math.min(clip.seconds - about.window_s, seconds - about.window_s / 2)))}>
          <div class="part" style=${{ left: `${(100 * start) / clip.seconds}%`, width: `${(100 * about.window_s) / clip.seconds}%` }}></div>
          ${overview.answer && html`<${EventBars} events=${overview.answer.events} seconds=${clip.seconds}
            onPick=${(event) => setStart(Math.max(0, Math.min(clip.seconds - about.window_s, (event.start_s + event.end_s - about.window_s) / 2)))} />`}
        <//>
        <input class="part-slider" type="range" min="0" max=${clip.seconds - about.window_s} step="0.5" value=${start} aria-label="Start of the part"
          aria-valuetext=${`${clock(start)} to ${clock(start + about.window_s)}`} onInput=${(event) => setStart(Number(event.target.value))} />
        ${overview.answer ? html`<${EventList} events=${overview.answer.events} />` : html`<p class="hint">${overview.busy ? "Looking for events\u2026" : "Type words to see their events."}</p>`}
        <p class="problem" role="alert">${overview.problem}</p>
      </section>`}
      <section class="card" aria-labelledby="picture-title">
        <h2 id="picture-title">Spectrogram ${long && html`<small>${clock(start)} to ${clock(start + about.window_s)}</small>`}</h2>
        <${Spectrogram} tall picture=${answer?.spectrogram ?? clip?.spectrogram} start=${long ? start : 0} name=${clip?.name} empty=${empty}>
          ${player.at !== null && html`<div class="playhead" style=${{ left: `${(100 * player.at) / Math.min(clip.seconds, about.window_s)}%` }}></div>`}
        <//>
        <p class="problem" role="alert">${unanswered}</p>
      </section>
      <${Noise} noises=${about.noises} noise=${noise} snr=${snr} own=${own} problem=${problem.noise} ready=${answer !== null && answer !== undefined}
        milliseconds=${answer ? Math.round(answer.milliseconds) : 0}
        onNoise=${setNoise} onSnr=${setSnr} onOwn=${takeNoise} />
      <section class="card" aria-labelledby="ranking-title">
        <h2 id="ranking-title">Ranking <${Link} /></h2>
        <p class="hint" aria-live="polite">${reading ? "Reading the words\u2026" : truth ? html`Counted as right: <strong>${truth}</strong>. Press another label to count that one.` : "The label that counts as right is marked; press another one to change it."}</p>
        <${Rankings} rules=${about.rules} answer=${answer} ranges=${ranges} right=${truth} onRight=${setRight} downTo=${downTo} />
      </section>
      <section class="card" aria-labelledby="chart-title">
        <h2 id="chart-title">Scores against noise <small>SNR in dB; ${truth ? html`<strong>${truth}</strong> in colour, the other labels in grey; ` : ""}press a chart to go there</small></h2>
        <${Charts} rules=${about.rules} sweep=${sweep} downTo=${downTo} snr=${snr} onSnr=${setSnr} />
      </section>
      <${Why} answer=${same ? answer : null} sweep=${sweep} snr=${snr} right=${truth} />
    </div>`;
}
