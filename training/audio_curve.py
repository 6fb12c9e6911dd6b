"""Plot the training curve of the audio tower: `python -m training.audio_curve`.

Reads `curve.jsonl` of the training folder and writes `docs/audio-curve.svg`: zero-shot accuracy on
the validation sets against the number of training examples.
"""

import json

from training.audio_tower import CURVE
from training.collect import ROOT

WIDTH, HEIGHT, MARGIN = 640, 320, 48
LINES = {
    ("urban", "clean"): ("#4a9d6e", "UrbanSound8K, clean"),
    ("esc50", "clean"): ("#1f6f8b", "ESC-50, clean"),
    ("esc50", "10_db"): ("#b08a1e", "ESC-50, 10 dB"),
    ("esc50", "0_db"): ("#8b3a62", "ESC-50, 0 dB"),
    ("kitchen", "clean"): ("#c8553d", "Kitchen20, clean"),
}
"""Set and condition, colour and name of each line."""


def read_points(name: str, condition: str) -> list[tuple[float, float]]:
    """Return (examples, accuracy as a share) for every line of the curve."""
    rows = [json.loads(line) for line in CURVE.read_text(encoding="utf-8").splitlines()]
    return [(row["examples"], row[name][condition] / 100) for row in rows]


def draw() -> str:
    """Return the plot as SVG."""
    lines = {key: read_points(*key) for key in LINES}
    most = max(examples for points in lines.values() for examples, _ in points)

    def at(examples: float, value: float) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * examples / most
        return f"{x:.1f},{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for percent in range(0, 101, 20):
        y = at(0, percent / 100).split(",")[1]
        parts.append(f'<path d="M{MARGIN} {y}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y}" text-anchor="end">{percent} %</text>')
    for place, (key, points) in enumerate(lines.items()):
        colour, name = LINES[key]
        path = " ".join(at(*point) for point in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        x, y = WIDTH - MARGIN - 180, HEIGHT - MARGIN - 12 - 16 * (len(lines) - 1 - place)
        label = f"{name}: {points[-1][1]:.1%}"
        parts.append(f'<text x="{x}" y="{y}" fill="{colour}">{label}</text>')
    foot = f"training examples, 0 to {most:,.0f}; validation sets"
    parts.append(f'<text x="{MARGIN}" y="{HEIGHT - 16}">{foot}</text></svg>')
    return "\n".join(parts)


def main() -> None:
    """Write the plot."""
    (ROOT.parent / "docs" / "audio-curve.svg").write_text(draw() + "\n")


if __name__ == "__main__":
    main()
