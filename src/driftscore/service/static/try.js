// The tab "Try": a recording, words, and where they are in it; noise and other rules on request.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { get, newest, open, post, upload } from "./api.js";
import { Charts } from "./chart.js";
import { EventBars, EventList, keyOf } from "./events.js";
import { Words, useExamples } from "./labels.js";
import { writeLink } from "./link.js";
import { Noise } from "./noise.js";
import { usePlayer } from "./player.js";
import { Fits, RULES, Rankings } from "./rankings.js";
import { Sound } from "./sound.js";
import { Spectrogram, clock } from "./spectrogram.js";
import { Why } from "./why.js";
import { decibels, labelsProblem, megabytes, sameWords, splitLabels, verdicts } from "./words.js";

const WAIT_MS = 300;
const LONGEST_PLAY_S = 60;
const AROUND_S = 0.5; // that is played before and after an event
const BUSY = 503;

// Returns a value that follows another one after it has stopped changing.
function useSettled(value, wait = WAIT_MS) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), wait);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

// Calls the server with the newest arguments; returns its last answer, or what went wrong and at
// which field. A server that is busy is asked again, and the last answer stays meanwhile.
function useAnswer(path, asked, ready) {
  const nothing = { answer: null, problem: "", field: "", busy: false };
  const [state, setState] = useState(nothing);
  const run = useMemo(() => newest(
    (where, body) => post(where, body),
    (answer) => setState({ ...nothing, answer }),
    (error) => setState((old) => ({ answer: error.status === BUSY ? old.answer : null, problem: error.message, field: error.field, busy: false })),
  ), []);
  useEffect(() => {
    if (!ready) return;
    setState((old) => ({ ...old, busy: true }));
    run(path, asked);
  }, [path, JSON.stringify(asked), ready]);
  return [state, () => setState(nothing)];
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

// The noise that is on, beside every result that it changes.
function Added({ noise, snr }) {
  return snr === null ? null : html`<span class="tag added">with ${noise} noise at ${decibels(snr)}</span>`;
}

async function download(clip, events, format, ending) {
  const body = { file: clip.name, format, events: events.map(({ label, start_s, end_s, score, verdict }) => ({ label, start_s, end_s, score, answer: verdict })) };
  const response = await open("/page/export", { method: "POST", json: body });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${clip.name.replace(/\.[^.]*$/, "")}${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function Try({ about, link, hidden }) {
  const [clip, setClip] = useState(null);
  const [start, setStart] = useState(0);
  const [text, setText] = useState(link.labels || "");
  const [noise, setNoise] = useState(about.noises.includes(link.noise) ? link.noise : "traffic");
  const [own, setOwn] = useState(null);
  const [snr, setSnr] = useState(link.snr);
  const [right, setRight] = useState(link.right);
  const [example, setExample] = useState("");
  const [compared, setCompared] = useState(link.compare !== "");
  const first = about.examples.find(({ name }) => name === link.example) ?? about.examples[0];
  const [expected, setExpected] = useState(about.opened !== "" || first.seconds > about.window_s); // a long recording
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState({ sound: "", noise: "" });
  const [answers, setAnswers] = useState({});
  const [problems, setProblems] = useState({});
  const unplaced = useRef(false); // whether the recording is still to be opened at its first event
  const player = usePlayer();
  const taught = useExamples(about.limits);

  const labels = useMemo(() => splitLabels(text), [text]);
  const trouble = labelsProblem(labels, about.limits);
  const settledText = useSettled(text);
  const asked = useMemo(() => splitLabels(settledText), [settledText]);
  const ready = clip !== null && labelsProblem(asked, about.limits) === "";
  const long = clip !== null && (clip.events !== undefined || clip.seconds > about.window_s + 0.05);
  const last = clip ? Math.max(0, clip.seconds - about.window_s) : 0; // where the last part begins
  const mix = { noise: noise === "own" ? `clip:${own?.id}` : noise, snr_db: snr };
  const noiseName = noise === "own" ? own?.name : noise;
  const settledMix = useSettled(JSON.stringify(mix));
  const counted = asked.includes(right) ? right : "";
  const at = clip ? `/page/clips/${clip.id}` : "";
  const question = taught.question(asked);
  const [ranking, dropRanking] = useAnswer(`${at}/rank`, { ...question, start_s: start, ...mix }, ready);
  const [swept, dropSweep] = useAnswer(`${at}/sweep`, { ...question, start_s: start, noise: mix.noise, right: counted }, ready && compared);
  const [overview, dropOverview] = useAnswer(`${at}/events`, { ...question, ...JSON.parse(settledMix) }, ready && long && !clip.events);
  const answer = clip && ready ? ranking.answer : null;
  const same = answer && swept.answer && sameWords(swept.answer.labels, answer.labels);
  const sweep = same ? swept.answer : null;
  const downTo = useMemo(() => (sweep ? verdicts(sweep) : null), [sweep]);
  const truth = counted || sweep?.right || "";
  const found = clip?.events ?? (ready ? overview.answer?.events : undefined);
  const events = useMemo(() => found?.map((event) => ({ ...event, verdict: answers[keyOf(event)] ?? event.verdict ?? "" })), [found, answers]);
  const problemAt = (field) => [ranking, swept, overview].find((one) => one.problem && one.field === field)?.problem ?? "";

  useEffect(() => {
    if (hidden) return;
    writeLink({ labels: labels.join(", "), noise: snr === null || noise === "own" ? "" : noise, snr, right: counted, example, compare: compared ? "rules" : "" });
  }, [text, noise, snr, counted, example, compared, hidden]);

  const show = (event) => setStart(Math.max(0, Math.min(last, (event.start_s + event.end_s - about.window_s) / 2)));
  useEffect(() => {
    if (!unplaced.current || !found?.length) return;
    unplaced.current = false;
    show(found[0]);
  }, [found]);

  const begin = (newClip, changes) => {
    dropRanking();
    dropSweep();
    dropOverview();
    setAnswers({});
    setProblems({});
    unplaced.current = true;
    setClip(newClip);
    setStart(newClip.start_s);
    setExample(changes.example ?? "");
    setSnr(changes.snr ?? null); // a new recording is as it is
    if (changes.labels) setText(changes.labels);
    setRight(changes.right ?? "");
  };
  const take = async (blob, name, changes = {}) => {
    player.halt();
    setProblem((old) => ({ ...old, sound: "" }));
    if (blob.size > about.limits.body_bytes) {
      setClip(null);
      setExpected(false);
      const sizes = `${name} has ${megabytes(blob.size)}; the server takes ${megabytes(about.limits.body_bytes)}.`;
      setProblem((old) => ({ ...old, sound: `${sizes} Give a shorter recording, or a compressed one.` }));
      return;
    }
    if (!changes.example) setExpected(false);
    setBusy(true);
    try {
      begin({ ...await upload(blob), name }, changes);
    } catch (error) {
      setClip(null);
      setProblem((old) => ({ ...old, sound: error.message }));
    }
    setBusy(false);
  };
  const takeExample = async (one, changes = {}) => {
    try {
      const file = `${one.name}.ogg`;
      const sound = await (await fetch(`/static/sounds/${file}`)).blob();
      await take(sound, file, { labels: one.labels, example: one.name, ...changes });
    } catch {
      setProblem((old) => ({ ...old, sound: "The example cannot be read: the server does not answer." }));
    }
  };
  const takeOpened = async () => {
    setBusy(true);
    try {
      const opened = await get("/page/opened");
      begin({ ...opened, start_s: 0 }, { labels: opened.labels.join(", ") });
    } catch (error) {
      setProblem((old) => ({ ...old, sound: error.message }));
    }
    setBusy(false);
  };
  const begun = useRef(false);
  useEffect(() => {
    if (hidden || begun.current) return; // nothing is computed before this tab is looked at
    begun.current = true;
    if (about.opened) takeOpened();
    else takeExample(first, { labels: link.labels || first.labels, snr: link.snr, right: link.right });
  }, [hidden]);
  const takeNoise = async (file) => {
    setProblem((old) => ({ ...old, noise: "" }));
    try {
      const { id } = await upload(file);
      setOwn({ id, name: file.name });
      setNoise("own");
    } catch (error) {
      setProblem((old) => ({ ...old, noise: error.message }));
    }
  };
  const play = (what, from, seconds) => {
    const length = Math.min(LONGEST_PLAY_S, seconds);
    const query = new URLSearchParams({ start_s: from, seconds: length, noise: mix.noise, ...(snr === null ? {} : { snr_db: snr }) });
    player.play(`${at}/sound?${query}`, what, from, (reason) => setProblem((old) => ({ ...old, sound: reason })));
  };
  const playEvent = (event) => {
    const from = Math.max(0, event.start_s - AROUND_S);
    show(event);
    play(keyOf(event), from, Math.min(clip.seconds, event.end_s + AROUND_S) - from);
  };
  const onVerdict = async (event, verdict) => {
    const key = keyOf(event);
    setAnswers((old) => ({ ...old, [key]: verdict }));
    setProblems((old) => ({ ...old, [key]: "" }));
    if (!clip.events) return; // of an upload: kept here, and in what is exported
    try {
      await post(`/page/opened/events/${event.id}/review`, { verdict });
    } catch (error) {
      setAnswers((old) => ({ ...old, [key]: event.verdict }));
      setProblems((old) => ({ ...old, [key]: `The answer was not saved: ${error.message}` }));
    }
  };
  const save = async (format, ending) => {
    try {
      await download(clip, events, format, ending);
    } catch (error) {
      setProblems((old) => ({ ...old, export: error.message }));
    }
  };
  const ranges = useMemo(() => {
    const rows = (rule) => (sweep ? sweep.rules[rule].flat() : []).concat(answer ? answer.rules[rule] : []);
    return Object.fromEntries(RULES.map(({ name }) => {
      const values = rows(name);
      return [name, [Math.min(...values), Math.max(...values)]];
    }));
  }, [sweep, answer]);
  const reading = ranking.busy && !sameWords(answer?.labels ?? [], asked);
  const playhead = (from, seconds) => player.at !== null && player.at >= from && player.at <= from + seconds
    && html`<div class="playhead" style=${{ left: `${(100 * (player.at - from)) / seconds}%` }}></div>`;
  const partName = `${clock(start)} to ${clock(start + about.window_s)}`;
  const added = html`<${Added} noise=${noiseName} snr=${snr} />`;
  const empty = busy ? "Reading the recording\u2026" : "Choose a file, record one, or press an example: its spectrogram appears here.";
  const summary = !events ? (overview.busy ? "Looking for them\u2026" : "") : events.length === 0 ? "none of the words stands out anywhere"
    : `${events.length} in ${clock(clip.seconds)}`;
  return html`
    <div class="try" hidden=${hidden}>
      <p class="lead">${about.opened ? html`Listen to the events of <strong>${about.opened}</strong> and say which are right; answers are saved for <code>driftscore review</code>.`
        : html`Name the sounds that matter in your own words, and see where they are in a recording.`}</p>
      <div class="inputs">
        <${Sound} examples=${about.examples} clip=${clip} busy=${busy} problem=${problem.sound || problemAt("sound")} playing=${player.what === "all"}
          onSound=${take} onExample=${takeExample} onPlay=${() => { const from = clip.seconds > LONGEST_PLAY_S ? start : 0; play("all", from, clip.seconds - from); }} />
        <${Words} text=${text} labels=${trouble ? [] : labels} taught=${taught} problem=${clip || text ? trouble || problemAt("labels") : ""}
          unclear=${answer?.unclear} unlike=${answer?.unlike} onText=${setText} />
      </div>
      ${(long || (!clip && expected)) && html`<section class="card" aria-labelledby="events-title">
        <h2 id="events-title">Events <small aria-live="polite">${summary}</small>${added}
          ${events?.length > 0 && html`<span class="exports"><button type="button" class="quiet" onClick=${() => save("csv", ".events.csv")}>Save as csv</button>
          <button type="button" class="quiet" onClick=${() => save("audacity", ".labels.txt")}>Audacity labels</button></span>`}</h2>
        <${Spectrogram} picture=${overview.answer?.spectrogram ?? clip?.overview} name=${clip?.name} empty=${empty}
            onPick=${(seconds) => setStart(Math.max(0, Math.min(last, seconds - about.window_s / 2)))}>
          <div class="part" style=${{ left: `${(100 * start) / clip?.seconds}%`, width: `${(100 * Math.min(about.window_s, clip?.seconds)) / clip?.seconds}%` }}></div>
          ${events && html`<${EventBars} events=${events} seconds=${clip.seconds} at=${player.at} onPick=${show} />`}
          ${clip && playhead(0, clip.seconds)}
        <//>
        <input class="part-slider" type="range" min="0" max=${last} step="0.5" value=${start} aria-label="Start of the part" disabled=${!clip}
          aria-valuetext=${partName} onInput=${(event) => setStart(Number(event.target.value))} />
        ${events?.length > 0 && html`<${EventList} key=${clip.id} events=${events} playing=${player.what} problems=${problems} onPlay=${playEvent} onVerdict=${onVerdict} onPick=${show} />`}
        <p class="problem" role="alert">${problems.export || (overview.field ? "" : overview.problem)}</p>
      </section>`}
      <section class="card" aria-labelledby="picture-title">
        <h2 id="picture-title">${long ? html`This part <small>${partName}</small>` : "The recording"}${added}<${Link} /></h2>
        <div class="result">
          <${Spectrogram} tall picture=${answer?.spectrogram ?? (long ? null : clip?.spectrogram)} start=${long ? start : 0} name=${clip?.name} empty=${long ? "" : empty}>
            ${clip && playhead(long ? start : 0, Math.min(clip.seconds, about.window_s))}
          <//>
          <${Fits} answer=${answer} part=${long ? "part" : "recording"} reading=${reading} />
        </div>
        <p class="problem" role="alert">${ranking.field ? "" : ranking.problem}</p>
      </section>
      <${Noise} noises=${about.noises} noise=${noise} snr=${snr} own=${own} problem=${problem.noise || problemAt("noise")} ready=${answer !== null}
        milliseconds=${answer ? Math.round(answer.milliseconds) : 0}
        onNoise=${(name) => { setProblem((old) => ({ ...old, noise: "" })); setNoise(name); }} onSnr=${setSnr} onOwn=${takeNoise} />
      <details class="card compare" open=${compared} onToggle=${(event) => setCompared(event.currentTarget.open)}>
        <summary><h2>Compare rules</h2> <small>how plain similarity, DAS and the default rank the words as noise grows</small></summary>
        ${compared && html`
        <p class="hint" aria-live="polite">${truth ? html`Counted as right: <strong>${truth}</strong>. Press another word to count that one.` : "The word that counts as right is marked; press another one to change it."} ${added}</p>
        <${Rankings} answer=${answer} ranges=${ranges} right=${truth} onRight=${setRight} downTo=${downTo} />
        <p class="problem" role="alert">${swept.field ? "" : swept.problem}</p>
        <h2>Scores against noise <small>SNR in dB; ${truth ? html`<strong>${truth}</strong> in colour, the other words in grey; ` : ""}press a chart to go there</small></h2>
        <${Charts} sweep=${sweep} downTo=${downTo} snr=${snr} onSnr=${setSnr} />
        <${Why} answer=${same ? answer : null} sweep=${sweep} snr=${snr} right=${truth} />`}
      </details>
    </div>`;
}
