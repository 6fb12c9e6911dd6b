// A perceptually uniform colour map: lightness rises linearly in OKLab from almost black to almost
// white, while the hue turns from violet over red to yellow.

function toSrgb(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

const gamma = (v) => (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055);

function colour(share) {
  const lightness = 0.1 + 0.86 * share;
  const hue = 285 + 175 * share; // violet, red at the middle, yellow
  let chroma = 0.05 + 0.15 * Math.sin(Math.PI * Math.min(1, share * 1.08));
  let rgb = toSrgb(lightness, chroma, hue);
  while (chroma > 0 && rgb.some((v) => v < 0 || v > 1)) {
    chroma -= 0.005; // the most colour that a screen can show at this lightness
    rgb = toSrgb(lightness, chroma, hue);
  }
  return rgb.map((v) => Math.round(255 * gamma(Math.min(1, Math.max(0, v)))));
}

export const COLOURS = Uint32Array.from({ length: 256 }, (_, level) => {
  const [r, g, b] = colour(level / 255);
  return (255 << 24) | (b << 16) | (g << 8) | r; // as ImageData holds them: little endian
});
