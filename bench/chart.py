"""A graph as SVG text: small panels under each other, one line each, from zero up, over the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 720, 96, 60, 44, 34
MOST_POINTS = 300


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel shows: its name with the unit, and a value for each time."""

    name: str
    values: Sequence[float]


def chart(title: str, times: Sequence[float], panels: Sequence[Panel]) -> str:
    """The SVG; times are seconds. Lines are thinned to 300 points, each the highest of those it stands for."""
    total = TOP + len(panels) * (HEIGHT + GAP) + 10
    body = [_text(LEFT, 24, title, "start", 15)]
    for number, panel in enumerate(panels):
        body += _panel(panel, times, TOP + number * (HEIGHT + GAP))
    style = "text{font-family:sans-serif;fill:#333}line{stroke:#ddd}polyline{fill:none;stroke:#2b6cb0;stroke-width:1.5}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<rect width="{WIDTH}" height="{total}" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panel(panel: Panel, times: Sequence[float], top: int) -> list[str]:
    highest = max(panel.values, default=0) * 1.15 or 1.0
    last = times[-1] if times else 1.0
    right = WIDTH - 20
    points = []
    for start in range(0, len(times), step := max(1, len(times) // MOST_POINTS)):
        x = LEFT + (right - LEFT) * times[start] / last
        y = top + HEIGHT * (1 - max(panel.values[start : start + step]) / highest)
        points.append(f"{x:.1f},{y:.1f}")
    marks = []
    for share in (0.0, 0.5, 1.0):
        y = top + HEIGHT * (1 - share)
        marks.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.0f}" y2="{y:.0f}"/>')
        marks.append(_text(LEFT - 6, y + 4, f"{highest * share:.0f}", "end"))
    return [
        *marks,
        f'<polyline points="{" ".join(points)}"/>',
        _text(LEFT + 4, top - 4, panel.name, "start"),
        _text(LEFT, top + HEIGHT + 14, "0 s", "start"),
        _text(right, top + HEIGHT + 14, f"{last:.0f} s", "end"),
    ]


def _text(x: float, y: float, words: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'
