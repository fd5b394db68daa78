"""The README's picture of all verdicts: a row per target, a square per claim, at the most advanced scale published."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.figures.published import SOURCES, Target

_AFTER, _WITHOUT = "not after Holm's correction", "no p-value to correct"
_KINDS = {
    HELD: ("#0072b2", "#0072b2"),
    f"{HELD}, {_AFTER}": ("#cfe5f3", "#0072b2"),
    f"{HELD}, {_WITHOUT}": ("#7fb8d8", "#7fb8d8"),
    UNDECIDED: ("#dfe3e7", "#dfe3e7"),
    NOT_TESTABLE: ("#ffffff", "#c3cad1"),
    f"{DID_NOT_HOLD}, {_WITHOUT}": ("#e09f80", "#e09f80"),
    f"{DID_NOT_HOLD}, {_AFTER}": ("#fbdccb", "#c1440e"),
    DID_NOT_HOLD: ("#c1440e", "#c1440e"),
}
"""What a square says, in the order of a row: its face and its edge."""

_ROW, _GAP, _TOP, _LEFT, _STEP, _IN_A_LINE = 0.2, 0.16, 0.85, 3.25, 0.143, 40
"""Inches: of a row, between sources, above the rows, left of squares, from one to the next; and squares in a line."""
_SOFT = "#5b6570"


def kind(verdict: str, after_holm: str | None) -> str:
    """What the square of a claim says, from its verdict, and from that after Holm's correction if there is one."""
    if verdict not in (HELD, DID_NOT_HOLD) or after_holm == verdict:
        return verdict
    return f"{verdict}, {_WITHOUT if after_holm is None else _AFTER}"


def row(target: Target) -> list[str]:
    """What the squares of a target say, in order; none where nothing is published."""
    if not target.results:
        return []
    first = target.results[0]
    judged = zip(first.claims, first.after_holm, strict=True)
    return sorted((kind(c.verdict, after) for c, after in judged if not c.check), key=list(_KINDS).index)


def drawn(every: Sequence[Target]) -> bytes:
    """The picture, as SVG."""
    of_source = {source: [t for t in every if t.source == source] for source in SOURCES}
    lines = sum(_lines(target) for target in every)
    width = _LEFT + _IN_A_LINE * _STEP
    height = _TOP + lines * _ROW + len(of_source) * _GAP
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "verdicts", "font.size": 7.5}):
        figure = Figure((width, height), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        squares = _legend(axes)
        y = _TOP
        for targets in of_source.values():
            for target in targets:
                squares += _labelled(axes, target, y)
                y += _lines(target) * _ROW
            y += _GAP
        for name, (face, edge) in _KINDS.items():
            at = [(x, y) for x, y, said in squares if said == name]
            xs, ys = zip(*at, strict=True)
            axes.scatter(xs, ys, s=68, marker="s", facecolor=face, edgecolor=edge, linewidth=0.7)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _legend(axes: Axes) -> list[tuple[float, float, str]]:
    """Its squares, as x, y and what they say, beside whose texts."""
    columns, lines = (0.17, 1.5, 4.3, 6.9), (0.17, 0.37)
    places = [(x, y) for y in lines for x in columns]
    order = [list(_KINDS)[number] for number in (0, 1, 2, 3, 7, 6, 5, 4)]
    for (x, y), name in zip(places, order, strict=True):
        axes.text(x + 0.12, y, name, va="center_baseline")
    axes.text(0.1, 0.62, "one square per claim", va="center_baseline", color=_SOFT)
    axes.text(_LEFT - 0.12, 0.62, "scale", ha="right", va="center_baseline", color=_SOFT)
    return [(x, y, name) for (x, y), name in zip(places, order, strict=True)]


def _labelled(axes: Axes, target: Target, y: float) -> list[tuple[float, float, str]]:
    """The squares of a target, as x, y and what they say, in lines that begin with its name."""
    how: dict[str, Any] = {"va": "center_baseline", "color": _SOFT}
    axes.text(0.1, y, target.name, va="center_baseline", fontweight="bold")
    axes.text(1.42, y, target.item.partition(" and ")[0], **how)
    axes.text(_LEFT - 0.12, y, target.results[0].scale if target.results else "not run yet", ha="right", **how)
    return [
        (_LEFT + number % _IN_A_LINE * _STEP, y + number // _IN_A_LINE * _ROW, said)
        for number, said in enumerate(row(target))
    ]


def _lines(target: Target) -> int:
    """That its squares take."""
    return max(1, -(-len(row(target)) // _IN_A_LINE))
