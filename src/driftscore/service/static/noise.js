// The noise slider: from no noise at the left to noise 20 dB above the sound at the right.

import { html, useRef } from "./vendor/htm-preact.js";
import { decibels, signed } from "./words.js";

const POSITIONS = 41; // position 0 is without noise, position 1 is 20 dB, position 41 is -20 dB
const toSnr = (position) => (position === 0 ? null : 21 - position);
const toPosition = (snr) => (snr === null ? 0 : 21 - snr);

export function Noise({ noises, noise, snr, own, problem, ready, milliseconds, onNoise, onSnr, onOwn }) {
  const chooser = useRef();
  const chosen = (event) => {
    if (event.target.value !== "file") {
      onNoise(event.target.value);
      return;
    }
    event.target.value = noise; // until there is a file
    chooser.current.click();
  };
  return html`
    <section class="card noise" aria-labelledby="noise-title">
      <h2 id="noise-title">Noise</h2>
      <div class="slider">
        <label class="visually-hidden" for="noise">Kind of noise</label>
        <select id="noise" value=${noise} onChange=${chosen}>
          ${noises.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
          ${own && html`<option value="own">${own.name}</option>`}
          <option value="file">${own ? "another file\u2026" : "your own file\u2026"}</option>
        </select>
        <input ref=${chooser} id="noise-file" type="file" accept="audio/*" hidden aria-label="Noise file"
          onChange=${(event) => { if (event.target.files.length) onOwn(event.target.files[0]); event.target.value = ""; }} />
        <div class="range">
          <input id="snr" type="range" min="0" max=${POSITIONS} step="1" value=${toPosition(snr)} aria-label="Amount of noise"
            aria-valuetext=${snr === null ? "no noise" : `signal to noise ratio ${signed(snr)} decibels`}
            onInput=${(event) => onSnr(toSnr(Number(event.target.value)))} />
          <div class="scale" aria-hidden="true"><span>no noise</span><span>20</span><span>10</span><span>0</span><span>\u221210</span><span>\u221220 dB</span></div>
        </div>
        <output class="snr" for="snr">${decibels(snr)}<small>${ready ? `server ${milliseconds} ms` : "\u00a0"}</small></output>
      </div>
      <p class="problem" role="alert">${problem}</p>
    </section>`;
}
