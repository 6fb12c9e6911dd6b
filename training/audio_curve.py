"""Draw the audio tower's training curve: `python -m training.audio_curve`.

Reads `training/work/audio_curve.csv`, writes `docs/audio-curve.svg`: cosine to the teacher
and zero-shot accuracy on held-out clips, against the number of mixtures heard.
"""

import csv

from training.audio_tower import CURVE
from training.collect import ROOT

WIDTH, HEIGHT, MARGIN = 640, 320, 48
COLOURS = {"held_out_cosine": "#1f6f8b", "held_out_accuracy": "#c8553d"}
NAMES = {"held_out_cosine": "cosine to mn04", "held_out_accuracy": "zero-shot accuracy"}


def read_points(column: str) -> list[tuple[float, float]]:
    """Return (mixtures heard, value) for the lines of the curve that have a value."""
    with open(CURVE, newline="") as handle:
        return [(float(r["clips"]), float(r[column])) for r in csv.DictReader(handle) if r[column]]


def draw() -> str:
    """Return the picture as SVG."""
    lines = {column: read_points(column) for column in COLOURS}
    most = max(clips for points in lines.values() for clips, _ in points)

    def at(clips: float, value: float) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * clips / most
        return f"{x:.1f},{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tenth in range(0, 11, 2):
        y = at(0, tenth / 10).split(",")[1]
        parts.append(f'<path d="M{MARGIN} {y}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y}" text-anchor="end">{tenth / 10:.1f}</text>')
    for place, (column, points) in enumerate(lines.items()):
        path = " ".join(at(*point) for point in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[column]}"/>')
        label = f"{NAMES[column]}, {points[-1][1]:.3f} at the end"
        x, y = MARGIN + 12, MARGIN + 16 * place
        parts.append(f'<text x="{x}" y="{y}" fill="{COLOURS[column]}">{label}</text>')
    foot = f"mixtures heard, 0 to {most:,.0f}; held-out clips of train/esc50"
    parts.append(f'<text x="{MARGIN}" y="{HEIGHT - 16}">{foot}</text></svg>')
    return "\n".join(parts)


def main() -> None:
    """Write the picture."""
    (ROOT.parent / "docs" / "audio-curve.svg").write_text(draw() + "\n")


if __name__ == "__main__":
    main()
