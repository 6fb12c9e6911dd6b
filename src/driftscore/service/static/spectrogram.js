// A spectrogram on a canvas, drawn from the columns that the server computes.

import { html, useLayoutEffect, useRef } from "./vendor/htm-preact.js";
import { COLOURS } from "./colours.js";

const TICKS_HZ = [100, 500, 1000, 2000, 5000, 10000];
const mel = (hz) => Math.log10(1 + hz / 700);

function paint(canvas, { columns, bands, levels }) {
  const values = Uint8Array.from(atob(levels), (sign) => sign.charCodeAt(0));
  const pixels = new Uint32Array(columns * bands);
  for (let column = 0; column < columns; column += 1) {
    for (let band = 0; band < bands; band += 1) {
      pixels[(bands - 1 - band) * columns + column] = COLOURS[values[column * bands + band]];
    }
  }
  canvas.width = columns;
  canvas.height = bands;
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), columns, bands);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export const clock = (seconds) => {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
};

const STEPS_S = [0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

function times(start, seconds) {
  const step = STEPS_S.find((s) => seconds / s <= 8) ?? 7200;
  const ticks = [];
  for (let at = Math.ceil(start / step) * step; at <= start + seconds * 0.97; at += step) ticks.push(at);
  return ticks;
}

function tickName(at) {
  return at < 60 ? String(Math.round(at * 10) / 10) : clock(at);
}

// Props: picture (from the server, or null), start in seconds, name, tall, children (overlays),
// empty (what to say without a picture), onPick(seconds).
export function Spectrogram({ picture, start = 0, name, tall, empty, onPick, children }) {
  const canvas = useRef();
  useLayoutEffect(() => {
    if (picture) paint(canvas.current, picture);
  }, [picture]);
  const low = mel(picture?.low_hz ?? 50);
  const high = mel(picture?.high_hz ?? 14000);
  const seconds = picture?.seconds ?? 0;
  const about = picture ? `Spectrogram of ${name}, ${clock(seconds)}, 50 Hz to 14 kHz` : "";
  const pick = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    onPick(start + ((event.clientX - box.left) / box.width) * seconds);
  };
  return html`
    <div class=${`spectrogram ${tall ? "tall" : ""}`}>
      <div class="hertz" aria-hidden="true">
        ${TICKS_HZ.map((hz) => html`<span key=${hz} style=${{ bottom: `${(100 * (mel(hz) - low)) / (high - low)}%` }}>
          ${hz < 1000 ? hz : `${hz / 1000}k`}</span>`)}
      </div>
      <div class=${`plot ${picture ? "drawn" : ""} ${onPick && picture ? "pickable" : ""}`} onClick=${onPick && picture ? pick : null}>
        <canvas ref=${canvas} role="img" aria-label=${about || "No recording yet"} hidden=${!picture}></canvas>
        ${!picture && html`<p class="empty">${empty}</p>`}
        ${picture && children}
      </div>
      <div class="times" aria-hidden="true">
        ${times(start, seconds).map((at) => html`<span key=${at} style=${{ left: `${(100 * (at - start)) / seconds}%` }}>
          ${tickName(at)}</span>`)}
        <span class="unit">${seconds > 60 ? "min" : "s"}</span>
      </div>
    </div>`;
}
