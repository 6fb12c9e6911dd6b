"""Plot the training curve of the audio tower: `python -m training.audio_curve`.

Reads `training/work/audio_curve.csv` and writes `docs/audio-curve.svg`: zero-shot accuracy on the
validation set, clean and in noise, against the number of training examples.
"""

import csv

from training.audio_tower import CURVE
from training.collect import ROOT

WIDTH, HEIGHT, MARGIN = 640, 320, 48
LINES = {
    "clean": ("#1f6f8b", "clean"),
    "at_20_db": ("#4a9d6e", "20 dB"),
    "at_10_db": ("#b08a1e", "10 dB"),
    "at_6_db": ("#c8553d", "6 dB"),
    "at_0_db": ("#8b3a62", "0 dB"),
}
"""Column of the curve, colour and name of each line."""


def read_points(column: str) -> list[tuple[float, float]]:
    """Return (examples, value) for every line of the curve."""
    with open(CURVE, newline="") as handle:
        return [(float(r["examples"]), float(r[column])) for r in csv.DictReader(handle)]


def draw() -> str:
    """Return the plot as SVG."""
    lines = {column: read_points(column) for column in LINES}
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
    for place, (column, points) in enumerate(lines.items()):
        colour, name = LINES[column]
        path = " ".join(at(*point) for point in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        x, y = WIDTH - MARGIN - 120, HEIGHT - MARGIN - 12 - 16 * (len(lines) - 1 - place)
        label = f"{name}: {points[-1][1]:.1%}"
        parts.append(f'<text x="{x}" y="{y}" fill="{colour}">{label}</text>')
    foot = f"training examples, 0 to {most:,.0f}; validation clips of train/esc50"
    parts.append(f'<text x="{MARGIN}" y="{HEIGHT - 16}">{foot}</text></svg>')
    return "\n".join(parts)


def main() -> None:
    """Write the plot."""
    (ROOT.parent / "docs" / "audio-curve.svg").write_text(draw() + "\n")


if __name__ == "__main__":
    main()
