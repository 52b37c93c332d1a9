"""Small plots as SVG, written by hand: curves over a logarithmic axis, and bars against a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 44
COLORS = ("#0b6bcb", "#b45309", "#15803d", "#7e22ce")
GRID, INK, BOUND = "#d4d4d8", "#27272a", "#b91c1c"


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of points; `bound` draws it as what must not be passed."""

    name: str
    points: Sequence[tuple[float, float]]
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """How far something is from its bound: 1 is the bound itself, less is better."""

    name: str
    share: float


def curves(title: str, across: str, up: str, found: Sequence[Curve]) -> str:
    """Draw curves, both axes logarithmic, each named at its right end."""
    xs = [x for curve in found for x, _ in curve.points]
    ys = [y for curve in found for _, y in curve.points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    high = max(high, low + 1)
    first, last = math.log10(min(xs)), math.log10(max(xs))

    def x_of(x: float) -> float:
        return LEFT + (math.log10(x) - first) / ((last - first) or 1) * (WIDTH - LEFT - RIGHT)

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 20, title, bold=True), _text(LEFT - 8, 20, up, anchor="end")]
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        parts += [
            _line(LEFT, y, WIDTH - RIGHT, y, GRID),
            _text(LEFT - 8, y + 4, _short(10.0**power), anchor="end"),
        ]
    for x in sorted(set(xs)):
        parts.append(_text(x_of(x), HEIGHT - BOTTOM + 18, _short(x), anchor="middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, anchor="middle"))
    colors = iter(COLORS)
    places: list[float] = []
    for curve in sorted(found, key=lambda one: one.points[-1][1], reverse=True):
        color = BOUND if curve.bound else next(colors)
        points = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in curve.points)
        dash = ' stroke-dasharray="5 4"' if curve.bound else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        if not curve.bound:
            parts += [
                f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{color}"/>'
                for x, y in curve.points
            ]
        place = max(y_of(curve.points[-1][1]) + 4, places[-1] + 15 if places else 0.0)
        places.append(place)
        parts.append(_text(WIDTH - RIGHT + 8, place, curve.name, color=color))
    return _picture(title, HEIGHT, parts)


def bars(title: str, found: Sequence[Bar]) -> str:
    """Draw bars on a logarithmic scale from a hundredth of the bound to ten times it; longer ones are cut there."""
    row, left = 20, 190
    height = TOP + row * len(found) + 34
    low, high = -2.0, 1.0

    def x_of(share: float) -> float:
        power = min(max(math.log10(max(share, 1e-9)), low), high)
        return left + (power - low) / (high - low) * (WIDTH - left - 60)

    parts = [_text(12, 20, title, bold=True)]
    for share in (0.01, 0.1, 1.0, 10.0):
        x, color = x_of(share), BOUND if share == 1.0 else GRID
        parts += [_line(x, TOP, x, height - 30, color), _text(x, height - 14, _short(share), anchor="middle")]
    for place, bar in enumerate(found):
        y, end = TOP + row * place, x_of(bar.share)
        color = COLORS[2] if bar.share <= 1.0 else BOUND
        parts.append(_text(left - 8, y + 14, bar.name, anchor="end"))
        width = max(end - left, 1.0)
        parts.append(f'<rect x="{left}" y="{y + 4}" width="{width:.1f}" height="12" fill="{color}"/>')
        parts.append(_text(end + 6, y + 14, f"{bar.share:.2g}"))
    return _picture(title, height, parts)


def _picture(title: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12">\n<title>{escape(title)}</title>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", color: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"{weight}>{escape(words)}</text>'
    )


def _line(x: float, y: float, to_x: float, to_y: float, color: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}"/>'


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
