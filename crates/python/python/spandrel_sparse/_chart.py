"""The convergence curve as SVG, in the colour of the surrounding text, so it is readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Collection

WIDTH, HEIGHT = 480, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 34
# More points than pixels would only make the page longer.
MOST = 2 * (WIDTH - LEFT - RIGHT)


def _ticks(low: int, high: int, most: int) -> list[int]:
    step = max(1, math.ceil((high - low) / most))
    return list(range(low, high + 1, step))


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `MOST` points, which include the smallest and the largest of each section."""
    if len(points) <= MOST:
        return points
    size = math.ceil(2 * len(points) / MOST)
    kept: list[tuple[int, float]] = []
    for at in range(0, len(points), size):
        stretch = points[at : at + size]
        ends = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept.extend(sorted(ends))
    return kept


def convergence(history: Collection[float], target: float) -> str:
    """The residual norms of a solve by iteration, on a logarithmic axis, with the goal as a dashed line; "" for fewer than two."""
    points = [(at, math.log10(norm)) for at, norm in enumerate(history) if norm > 0 and math.isfinite(norm)]
    if len(points) < 2:
        return ""
    values = [value for _, value in points]
    goal = math.log10(target) if target > 0 and math.isfinite(target) else None
    shown = values if goal is None else [*values, goal]
    low, high = math.floor(min(shown)), math.ceil(max(shown))
    high = max(high, low + 1)
    last = max(len(history) - 1, 1)

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / last

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="relative residual by iteration" font-family="sans-serif" font-size="11" fill="currentColor">'
    ]
    for power in _ticks(low, high, 6):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(power):.1f}" y2="{y(power):.1f}" stroke="currentColor" '
            f'stroke-opacity="0.15"/><text x="{LEFT - 6}" y="{y(power) + 4:.1f}" text-anchor="end">1e{power}</text>'
        )
    for at in _ticks(0, last, 6):
        parts.append(f'<text x="{x(at):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{at}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">iteration</text>')
    if goal is not None:
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(goal):.1f}" y2="{y(goal):.1f}" stroke="currentColor" '
            'stroke-opacity="0.6" stroke-dasharray="5 4"/>'
        )
    line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in _thinned(points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#2a7ab8" stroke-width="1.8"/></svg>')
    return "".join(parts)
