// Which words fit, by the default rule; and the rankings of three rules side by side, whose rows
// glide to their new rank when the noise changes.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { signed } from "./words.js";

export const RULES = [
  { name: "cosine", title: "Cosine", summary: "plain similarity of sound and words" },
  { name: "das", title: "DAS", summary: "adds how noise moves the words" },
  { name: "default", title: "Default", summary: "what classify uses for this model" },
];
const ROW_PX = 34;
const PHONE = matchMedia("(max-width: 760px)");
const mostRows = () => (PHONE.matches ? 4 : 8);
const fewestRows = () => (PHONE.matches ? 4 : 6); // of an empty ranking too: nothing moves when it fills

const number = (score) => signed(score.toFixed(3));
const LOW_COSINE = 0.2; // the bars of smaller scores are not filled

function shareOf(score, [low, high]) {
  return high > low ? Math.max(0, Math.min(1, (score - low) / (high - low))) : 0;
}

function Ranking({ rule, labels, scores, range, right, onRight }) {
  const order = labels.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const rank = order.reduce((places, label, place) => ({ ...places, [label]: place }), {});
  const wins = labels[order[0]] === right;
  const shown = Math.min(mostRows(), labels.length);
  const rows = Math.max(fewestRows(), shown);
  const rightPlace = rank[labels.indexOf(right)] ?? 0;
  // The right label is always in sight: if it is further down, it takes the last row.
  const row = (label) => (rightPlace < shown || rank[label] < shown - 1 ? rank[label] : labels[label] === right ? shown - 1 : shown);
  return html`
    <ol class=${`ranking ${wins ? "wins" : "fails"}`} style=${{ height: `${rows * ROW_PX}px` }} aria-label=${`Ranking by ${rule.title}`}>
      ${labels.map((_, i) => {
        const place = rank[i];
        const hidden = row(i) >= shown;
        const kind = labels[i] === right ? "right" : place === 0 ? "wrong" : "";
        return html`<li key=${labels[i]} class=${`${kind} ${hidden ? "below" : ""}`} aria-hidden=${hidden}
            style=${{ transform: `translateY(${Math.min(row(i), shown) * ROW_PX}px)` }}>
          <button type="button" tabindex=${hidden ? -1 : 0} onClick=${() => onRight(labels[i])} aria-pressed=${labels[i] === right}
              title="Count as right">
            <span class="rank">${place + 1}</span>
            <span class="label">${labels[i]}</span>
            <span class="score">${number(scores[i])}</span>
            <span class="track"><span class="fill" style=${{ transform: `scaleX(${shareOf(scores[i], range)})` }}></span></span>
          </button></li>`;
      })}
    </ol>
    <p class="more">${labels.length > shown ? `and ${labels.length - shown} more` : "\u00a0"}</p>`;
}

function Placeholder() {
  return html`<div class="ranking placeholder" aria-hidden="true" style=${{ height: `${fewestRows() * ROW_PX}px` }}>
    ${[0.9, 0.62, 0.5, 0.37, 0.28, 0.2].slice(0, fewestRows()).map((share) => html`<span style=${{ width: `${100 * share}%` }}></span>`)}</div>`;
}

// What the default rule says of a recording or a part: the words that fit, or none of them.
export function Fits({ answer, part, reading }) {
  if (!answer) return html`<div class="fits"><p class="headline">${reading ? "Reading the words\u2026" : "\u00a0"}</p></div>`;
  const scores = answer.rules.default;
  const order = answer.labels.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const fitting = answer.fits ? order.filter((i) => answer.fits[i]) : order.slice(0, 1);
  const range = [Math.min(0, ...scores), Math.max(LOW_COSINE, ...scores)];
  const verdict = !answer.fits ? `comes closest in this ${part}` : `${fitting.length > 1 ? "fit" : "fits"} this ${part}`;
  return html`<div class="fits">
    <p class="headline" aria-live="polite">${fitting.length ? fitting.map((i) => answer.labels[i]).join(", ") : "None of these"}</p>
    <p class="hint">${fitting.length ? verdict : `No word fits this ${part}: each scores as it does on other sounds.`}</p>
    <ol aria-label="Cosine of the sound and each word">${order.slice(0, mostRows()).map((i) => html`<li key=${answer.labels[i]} class=${fitting.includes(i) ? "right" : ""}>
      <span class="label">${answer.labels[i]}</span><span class="score">${number(scores[i])}</span>
      <span class="track"><span class="fill" style=${{ transform: `scaleX(${shareOf(scores[i], range)})` }}></span></span></li>`)}</ol>
    <p class="more">${order.length > mostRows() ? `and ${order.length - mostRows()} more` : ""}</p>
  </div>`;
}

// answer: {labels, rules: {name: scores}}; ranges: {name: [lowest, highest]} for the bars.
export function Rankings({ answer, ranges, right, onRight, downTo }) {
  const [, setPhone] = useState(PHONE.matches);
  useEffect(() => {
    const changed = () => setPhone(PHONE.matches);
    PHONE.addEventListener("change", changed);
    return () => PHONE.removeEventListener("change", changed);
  }, []);
  return html`<div class="three">
    ${RULES.map((rule) => html`<section key=${rule.name} aria-labelledby=${`rule-${rule.name}`}>
      <header class="rule">
        <h3 id=${`rule-${rule.name}`}>${rule.title}</h3>
        <p>${rule.summary}</p>
      </header>
      ${answer
        ? html`<${Ranking} rule=${rule} labels=${answer.labels} scores=${answer.rules[rule.name]} range=${ranges[rule.name]}
            right=${right} onRight=${onRight} />`
        : html`<${Placeholder} /><p class="more">\u00a0</p>`}
      <p class=${`verdict ${downTo ? downTo[rule.name].kind : ""}`}>${downTo ? downTo[rule.name].text : "\u00a0"}</p>
    </section>`)}
  </div>`;
}
