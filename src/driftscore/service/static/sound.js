// Where a recording comes from: a file that is dropped or chosen, the microphone, or an example.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { LONGEST_S, cannotRecord, startRecording } from "./record.js";
import { clock } from "./spectrogram.js";

function Recorder({ busy, onSound }) {
  const [state, setState] = useState({ on: false, seconds: 0, level: -80, problem: cannotRecord() });
  const stop = useRef(null);
  const finish = async () => {
    const end = stop.current;
    stop.current = null;
    if (!end) return;
    setState((old) => ({ ...old, on: false }));
    try {
      onSound(await end(), `recording ${new Date().toTimeString().slice(0, 5)}.wav`);
    } catch (error) {
      setState((old) => ({ ...old, problem: error.message }));
    }
  };
  const start = async () => {
    setState({ on: true, seconds: 0, level: -80, problem: "" });
    try {
      stop.current = await startRecording((seconds, level) => {
        setState((old) => ({ ...old, seconds, level }));
        if (seconds >= LONGEST_S) finish();
      });
    } catch (error) {
      setState({ on: false, seconds: 0, level: -80, problem: error.message });
    }
  };
  useEffect(() => () => { stop.current?.().catch(() => {}); }, []);
  return { state, start, finish, disabled: busy || (cannotRecord() !== "") };
}

export function Sound({ examples, clip, busy, problem, playing, onSound, onExample, onPlay }) {
  const [over, setOver] = useState(false);
  const chooser = useRef();
  const recorder = Recorder({ busy, onSound });
  const { on, seconds, level } = recorder.state;
  const taken = (files) => { if (files?.length) onSound(files[0], files[0].name); };
  const dropped = (event) => {
    event.preventDefault();
    setOver(false);
    taken(event.dataTransfer?.files);
  };
  return html`
    <section class=${`card sound ${over ? "over" : ""}`} aria-labelledby="sound-title"
        onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
      <h2 id="sound-title">Sound</h2>
      <div class="row">
        <button type="button" class="primary" disabled=${busy} onClick=${() => chooser.current.click()}>Choose a file</button>
        <input ref=${chooser} id="file" type="file" accept="audio/*,video/*" hidden aria-label="Sound file"
          onChange=${(event) => { taken(event.target.files); event.target.value = ""; }} />
        <button type="button" class=${on ? "recording" : ""} disabled=${recorder.disabled} onClick=${on ? recorder.finish : recorder.start}>
          ${on ? `Stop (${seconds.toFixed(0)} of ${LONGEST_S} s)` : "Record"}</button>
        <button type="button" disabled=${!clip || busy} onClick=${onPlay} aria-pressed=${playing}>${playing ? "Stop playing" : "Play"}</button>
        <span class="meter" hidden=${!on} role="meter" aria-label="Level" aria-valuemin="-80" aria-valuemax="0" aria-valuenow=${Math.round(level)}>
          <span style=${{ transform: `scaleX(${(level + 80) / 80})` }}></span></span>
      </div>
      <p class="hint">${busy ? "Reading the recording\u2026"
        : clip ? html`<strong>${clip.name}</strong> \u00b7 ${clock(clip.seconds)}` : "Drop a recording anywhere on this card, or try an example:"}</p>
      <div class="row examples">
        ${examples.map((example) => html`<button key=${example.name} type="button" class="quiet" disabled=${busy}
          onClick=${() => onExample(example)}>A ${example.name}, ${example.seconds} s</button>`)}
      </div>
      <p class="problem" role="alert">${problem || recorder.state.problem}</p>
    </section>`;
}
