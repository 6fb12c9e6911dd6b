// Why: how the scores of each label come about, and the drift.

import { html } from "./vendor/htm-preact.js";
import { decibels, signed } from "./words.js";

const fixed = (value, digits) => signed(value.toFixed(digits));

function Parts({ answer, right }) {
  const { cosine, das } = answer.rules;
  const usual = answer.rules.default;
  const order = answer.labels.map((_, i) => i).sort((a, b) => usual[b] - usual[a] || a - b).slice(0, 8);
  return html`<div class="scrolls" tabindex="0" role="region" aria-label="Parts of the scores"><table class="parts">
    <thead><tr><th scope="col">label</th><th scope="col">cosine</th><th scope="col">+ drift</th><th scope="col">= DAS</th><th scope="col">default</th></tr></thead>
    <tbody>${order.map((i) => html`<tr key=${answer.labels[i]} class=${answer.labels[i] === right ? "right" : ""}>
      <th scope="row">${answer.labels[i]}</th><td>${fixed(cosine[i], 3)}</td><td>${fixed(das[i] - cosine[i], 3)}</td>
      <td>${fixed(das[i], 3)}</td><td>${fixed(usual[i], 3)}</td></tr>`)}</tbody></table></div>`;
}

function rivalOf(sweep) {
  const place = sweep.labels.indexOf(sweep.right);
  const rows = sweep.rules.cosine;
  const losing = rows.find((row) => row.some((score, i) => i !== place && score > row[place])) ?? rows[rows.length - 1];
  return losing.map((score, i) => [score, i]).filter(([, i]) => i !== place).sort((a, b) => b[0] - a[0])[0][1];
}

// The path of the recording from clean to noisy, in the plane of two scores: that of the right label
// and that of its strongest rival. Above the diagonal the right label wins. Each short arrow is what
// DAS adds, the agreement with the drift of both labels.
function Drift({ sweep, snr }) {
  const place = sweep.labels.indexOf(sweep.right);
  const rival = rivalOf(sweep);
  const points = sweep.snrs_db.map((at, i) => ({
    at, from: [sweep.rules.cosine[i][rival], sweep.rules.cosine[i][place]], to: [sweep.rules.das[i][rival], sweep.rules.das[i][place]],
  })).filter(({ at }) => at === null || at % 4 === 0);
  const every = points.flatMap(({ from, to }) => [...from, ...to]);
  const low = Math.min(...every);
  const high = Math.max(...every);
  const pad = 0.12 * (high - low || 1);
  const at = (value) => 300 * ((value - low + pad) / (high - low + 2 * pad));
  const xy = ([x, y]) => `${at(x).toFixed(1)},${(300 - at(y)).toFixed(1)}`;
  const named = new Set(); // points whose SNR is written beside them: those that have room for it
  const used = [];
  for (const { at: level, from } of points) {
    const place = xy(from).split(",").map(Number);
    if (used.some(([x, y]) => Math.hypot(place[0] - x, place[1] - y) < 22)) continue;
    named.add(level);
    used.push(place);
  }
  const near = snr === null ? null : Math.round(snr / 4) * 4;
  return html`<figure class="drift">
    <svg viewBox="0 0 300 300" role="img" aria-label=${`Path of the recording as the noise grows: score of ${sweep.right} against score of ${sweep.labels[rival]}`}>
      <defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>
      <path class="lost" d="M0 300L300 0V300z" /><path class="border" d="M0 300L300 0" />
      <polyline class="path" points=${points.map(({ from }) => xy(from)).join(" ")} />
      ${points.map(({ at: level, from, to }) => html`<g key=${level} class=${level === near ? "now" : ""}>
        <path class="step" d=${`M${xy(from)}L${xy(to)}`} marker-end="url(#tip)" /><circle cx=${xy(from).split(",")[0]} cy=${xy(from).split(",")[1]} r=${level === near ? 5 : 3} /></g>`)}
      ${points.filter(({ at: level }) => named.has(level)).map(({ at: level, from }) => html`<text key=${level}
        x=${Number(xy(from).split(",")[0]) + 8} y=${Number(xy(from).split(",")[1]) + 4}>${level === null ? "clean" : signed(level)}</text>`)}
    </svg>
    <figcaption><p>Up: cosine with <strong>${sweep.right}</strong>. Right: cosine with <strong>${sweep.labels[rival]}</strong>, its strongest rival.
      In the shaded half the rival wins. The line is this sound from clean to \u221220 dB; each arrow is what DAS adds: how far
      the sound lies along the drift of each label, the direction in which its noisy prompts move.</p></figcaption>
  </figure>`;
}

export function Why({ answer, sweep, snr, right }) {
  const about = sweep?.why;
  return html`<section class="why" aria-labelledby="why-title">
    <h2 id="why-title">Why</h2>
    ${!answer || !sweep ? html`<p class="hint tallest">Scores and drift of each word appear here with a recording.</p>` : html`
    <div class="two">
      <div>
        <h3>The scores ${snr === null ? "without noise" : `at ${decibels(snr)}`}</h3>
        <${Parts} answer=${answer} right=${right} />
        <h3>The default rule</h3>
        <p class="hint">Here it is <code>${about.rule}</code>: ${about.reason}.</p>
      </div>
      ${sweep.labels.length > 1 && html`<div><h3>The drift</h3><${Drift} sweep=${sweep} snr=${snr} /></div>`}
    </div>`}
  </section>`;
}
