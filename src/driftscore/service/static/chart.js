// Scores against SNR, one small chart per rule: the right label in colour, the others in grey, a
// line where the rule fails, and the SNR of the slider. Noise grows to the right, as on the slider.

import { html, useEffect, useRef } from "./vendor/htm-preact.js";
import { RULES } from "./rankings.js";
import { signed } from "./words.js";

const HEIGHT = 190;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function columnsOf(sweep, rule) {
  const at = sweep.snrs_db.map((snr, i) => [snr, i]).filter(([snr]) => snr !== null).sort((a, b) => a[0] - b[0]);
  return [at.map(([snr]) => snr), ...sweep.labels.map((_, label) => at.map(([, i]) => sweep.rules[rule][i][label]))];
}

function verticalLine(plot, x, colour, dash) {
  const { ctx, bbox } = plot;
  const at = Math.round(plot.valToPos(x, "x", true));
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio * 1.5;
  ctx.setLineDash(dash.map((v) => v * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(at, bbox.top);
  ctx.lineTo(at, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

// The SNR at the line where the rule fails, on the side where it still holds.
function nameBorder(plot, border) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillStyle = style("--wrong");
  ctx.textAlign = "right";
  ctx.textBaseline = "top";
  const text = `${signed(border)} dB`;
  const gap = 5 * devicePixelRatio;
  const room = bbox.left + ctx.measureText(text).width + 2 * gap;
  const at = Math.max(room, plot.valToPos(border, "x", true) - gap);
  ctx.strokeStyle = style("--surface");
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeText(text, at, bbox.top + gap);
  ctx.fillText(text, at, bbox.top + gap);
  ctx.restore();
}

function shadeFailed(plot, border, colour) {
  const { ctx, bbox } = plot;
  const from = border === null ? bbox.left : plot.valToPos(border, "x", true);
  ctx.save();
  ctx.fillStyle = colour;
  ctx.fillRect(from, bbox.top, bbox.left + bbox.width - from, bbox.height);
  ctx.restore();
}

function options(width, sweep, rule, now) {
  const ink = style("--muted");
  const grid = { stroke: style("--line"), width: 1 };
  const axis = { stroke: ink, grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const border = sweep.down_to_db[rule];
  const lines = sweep.labels.map((label) => ({
    label,
    stroke: label === sweep.right ? style("--accent") : style("--faint"),
    width: label === sweep.right ? 2.5 : 1,
    points: { show: false },
  }));
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: { x: false, y: false, drag: { setScale: false } },
    scales: {
      x: { time: false, dir: -1, range: [-20, 20] },
      y: { range: (_, low, high) => [low - 0.12 * (high - low), high + 0.06 * (high - low)] },
    },
    axes: [
      { ...axis, size: 26, space: 44, values: (_, ticks) => ticks.map(signed) },
      { ...axis, size: 40, values: (_, ticks) => ticks.map((v) => String(Number(v.toFixed(2))).replace("-", "\u2212")) },
    ],
    series: [{}, ...lines],
    hooks: {
      drawClear: [(plot) => { if (border === null || border > -20) shadeFailed(plot, border, style("--fail-tint")); }],
      draw: [
        (plot) => {
          const fails = border !== null && border > -20;
          if (fails) verticalLine(plot, border, style("--wrong"), [4, 3]);
          if (now.current !== null) verticalLine(plot, now.current, style("--ink"), []);
          if (fails) nameBorder(plot, border);
        },
      ],
    },
  };
}

function Chart({ sweep, rule, title, snr, onSnr }) {
  const box = useRef();
  const plot = useRef(null);
  const now = useRef(snr);
  now.current = snr;
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(box.current.clientWidth, sweep, rule, now), columnsOf(sweep, rule), box.current);
      plot.current.over.addEventListener("click", (event) => {
        onSnr(Math.round(plot.current.posToVal(event.offsetX, "x")));
      });
    };
    draw();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const watch = new ResizeObserver(() => {
      if (plot.current && box.current.clientWidth !== plot.current.width) {
        plot.current.setSize({ width: box.current.clientWidth, height: HEIGHT });
      }
    });
    watch.observe(box.current);
    dark.addEventListener("change", draw);
    return () => {
      watch.disconnect();
      dark.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [sweep, rule]);
  useEffect(() => { plot.current?.redraw(false); }, [snr]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${title}></div>`;
}

export function Charts({ sweep, downTo, snr, onSnr }) {
  return html`<div class="three charts">
    ${RULES.map((rule) => html`<figure key=${rule.name}>
      <figcaption><strong>${rule.title}</strong> <span>score in units of cosine</span></figcaption>
      ${sweep
        ? html`<${Chart} sweep=${sweep} rule=${rule.name} snr=${snr} onSnr=${onSnr}
            title=${`Scores by ${rule.title} against SNR: ${sweep.right} is ${downTo[rule.name].text}`} />`
        : html`<div class="chart empty" aria-hidden="true"></div>`}
    </figure>`)}
  </div>`;
}
