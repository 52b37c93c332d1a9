"""Small charts as SVG text: bars, lines, and a runner's states in time. Pure; nothing is styled inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ephemerd.app.history import HistoryView
from ephemerd.app.timeline import Lane
from ephemerd.web.dashboard.words import clock, day, span

WIDTH, HEIGHT = 560, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 6, 8, 20


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its title and the keys of its series: (text, class)."""

    title: str
    keys: tuple[tuple[str, str], ...]
    svg: str


@dataclass(frozen=True, slots=True)
class Series:
    """One row of numbers, one a bucket; None leaves a gap. `cls` is its class in the style sheet."""

    text: str
    cls: str
    values: Sequence[float | None]


def of_history(view: HistoryView) -> tuple[Chart, ...]:
    """Return the charts of a window: throughput, waits, durations, and idle runners that were let go."""
    buckets, times = view.buckets, [bucket.at for bucket in view.buckets]
    ended = (
        Series("succeeded", "c-good", [one.succeeded for one in buckets]),
        Series("other", "c-other", [one.other for one in buckets]),
        Series("failed", "c-bad", [one.failed for one in buckets]),
    )
    waits = (
        Series("p90", "c-soft", [one.wait.p90 for one in buckets]),
        Series("p50", "c-main", [one.wait.p50 for one in buckets]),
    )
    ran = (
        Series("p90", "c-soft", [one.duration.p90 for one in buckets]),
        Series("p50", "c-main", [one.duration.p50 for one in buckets]),
    )
    gone = (Series("let go", "c-leave", [one.let_go for one in buckets]),)
    return (
        _chart("Jobs ended", bars(ended, times, "Jobs ended"), ended),
        _chart("Queue wait", lines(waits, times, "Queue wait"), waits),
        _chart("Duration", lines(ran, times, "Duration"), ran),
        _chart("Idle runners let go", bars(gone, times, "Idle runners let go"), gone),
    )


def _chart(title: str, svg: str, series: Sequence[Series]) -> Chart:
    return Chart(title, tuple((one.text, one.cls) for one in series), svg)


def nice(most: float) -> float:
    """Return a round number not below `most` for the top of an axis."""
    if most <= 0:
        return 1.0
    size = 1.0
    while size * 10 < most:
        size *= 10
    while size > most:
        size /= 10
    return next(size * step for step in (1, 2, 3, 4, 5, 6, 8, 10) if size * step >= most * 0.9999)


def bars(series: Sequence[Series], times: Sequence[int], about: str) -> str:
    """Draw stacked bars, the first series at the bottom."""
    totals = [sum(one.values[place] or 0 for one in series) for place in range(len(times))]
    top = max(1.0, nice(max(totals, default=0)))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(times))
    parts = []
    for place, at in enumerate(times):
        below = 0.0
        texts = ", ".join(f"{one.values[place] or 0:g} {one.text}" for one in series)
        group = []
        for one in series:
            value = one.values[place] or 0
            if value:
                y = _y(below + value, top)
                height = _y(below, top) - y
                group.append(
                    f'<rect class="{one.cls}" x="{LEFT + place * step + 0.5:.1f}" y="{y:.1f}" '
                    f'width="{max(0.8, step - 1):.1f}" height="{height:.1f}"/>'
                )
                below += value
        if group:
            parts.append(f"<g><title>{clock(at)[:5]} UTC: {escape(texts)}</title>{''.join(group)}</g>")
    return _svg("".join(parts), times, top, f"{about}: {sum(totals):g} in all", f"{top:g}")


def lines(series: Sequence[Series], times: Sequence[int], about: str) -> str:
    """Draw lines with a dot at each value; times between values are gaps."""
    top = nice(max((value for one in series for value in one.values if value is not None), default=0))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(times))
    parts = []
    for one in series:
        pieces: list[list[tuple[float, float]]] = [[]]
        dots = []
        for place, value in enumerate(one.values):
            if value is None:
                pieces.append([])
                continue
            x, y = LEFT + (place + 0.5) * step, _y(value, top)
            pieces[-1].append((x, y))
            text = f"{clock(times[place])[:5]} UTC: {one.text} {span(value)}"
            dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"><title>{escape(text)}</title></circle>')
        paths = "".join(
            '<polyline points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in piece) + '"/>'
            for piece in pieces
            if len(piece) > 1
        )
        parts.append(f'<g class="line {one.cls}">{paths}{"".join(dots)}</g>')
    return _svg("".join(parts), times, top, f"{about}, the highest {span(top)} or less", span(top))


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _svg(inside: str, times: Sequence[int], top: float, about: str, top_text: str) -> str:
    middle = _y(top / 2, top)
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for y in (_y(0, top), middle, _y(top, top))
    )
    labels = f'<text class="axis" x="{LEFT - 5}" y="{TOP + 8}" text-anchor="end">{escape(top_text)}</text>'
    labels += f'<text class="axis" x="{LEFT - 5}" y="{_y(0, top):.0f}" text-anchor="end">0</text>'
    step = (WIDTH - LEFT - RIGHT) / max(1, len(times))
    every = max(1, len(times) // 5)
    wide = len(times) > 1 and times[-1] - times[0] > 2 * 86_400_000
    for place in range(0, len(times), every):
        shown = day(times[place])[5:] if wide else clock(times[place])[:5]
        x = LEFT + place * step
        if x > WIDTH - 40:
            break
        stamp = "" if wide else f' data-at="{times[place]}" data-short'
        labels += f'<text class="axis" x="{x:.0f}" y="{HEIGHT - 5}"{stamp}>{shown}</text>'
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(about)}">'
        f"{grid}{inside}{labels}</svg>"
    )


STRIP_WIDTH, STRIP_HEIGHT = 1000, 46


def strip(lane: Lane, now: int) -> str:
    """Draw one runner's states from its first moment to its end or now, with the job that it held and its marks."""
    if not lane.spans:
        return ""
    start = lane.spans[0].start
    end = max(lane.ended if lane.ended is not None else now, start + 1)
    scale = STRIP_WIDTH / (end - start)

    def x(at: int) -> float:
        return max(0.0, min(float(STRIP_WIDTH), (at - start) * scale))

    parts = []
    for one in lane.spans:
        left, right = x(one.start), x(one.end if one.end is not None else end)
        width = max(1.5, right - left)
        text = f"{one.state} for {span(((one.end or end) - one.start) / 1000)}"
        parts.append(
            f'<g class="state-{one.state}"><title>{text}</title>'
            f'<rect x="{left:.1f}" y="8" width="{width:.1f}" height="20"/></g>'
        )
    for held in lane.held:
        left = x(held.start)
        width = max(1.5, x(held.end if held.end is not None else end) - left)
        parts.append(
            f'<rect class="held" x="{left:.1f}" y="29" width="{width:.1f}" height="4">'
            f"<title>held {escape(held.job)}</title></rect>"
        )
    for mark in lane.marks:
        at = x(mark.at)
        parts.append(
            f'<g class="mark mark-{mark.kind}"><title>{escape(mark.text)}</title>'
            f'<path d="M{at:.1f} 34v8M{at - 4:.1f} 42h8"/></g>'
        )
    about = f"States of {lane.runner}: " + ", ".join(one.state for one in lane.spans)
    return (
        f'<svg class="lane" viewBox="0 0 {STRIP_WIDTH} {STRIP_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(about)}">{"".join(parts)}</svg>'
    )
