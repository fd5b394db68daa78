"""Brings the computed parts of a target's page up to date; its prose is written by hand.

A page has, for each published scale, a block between `<!-- results SCALE -->` and `<!-- end SCALE -->`. Everything in
it comes from the files in `paper_figures/results/<target>-<scale>/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from paper_figures import frame
from paper_figures.claims import Claim, markdown, tally
from repro import staleness
from repro.errors import ReproError, told_as
from repro.evaluation.statistics import Estimate

HERE = Path(__file__).parent


def filled_in(target: str, scale: str, module: ModuleType, folder: Path) -> str:
    """The text of `<target>.md` with the block of `scale` rewritten.

    Args:
        folder: where the target's files are, drawn.

    Raises:
        ReproError: the page has no such block, or the files are damaged.
    """
    path = page_of(target)
    text = path.read_text() if path.exists() else ""
    pattern = re.compile(rf"(<!-- results {scale} -->\n).*?(<!-- end {scale} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ReproError(f"{path} has no block '<!-- results {scale} -->' ... '<!-- end {scale} -->' to fill in.")
    with told_as(
        lambda error: (
            f"{folder} holds no figure that can be read ({type(error).__name__}); make it again with "
            f"`make {target} SCALE={scale}`, which repeats no finished run."
        )
    ):
        block = _results(target, scale, module, folder)
    return pattern.sub(lambda match: match.group(1) + block + match.group(2), text)


def page_of(target: str) -> Path:
    return HERE / f"{target}.md"


def _results(target: str, scale: str, module: ModuleType, folder: Path) -> str:
    """The block's Markdown."""
    data = frame.read(frame.data_file(folder))
    claims = [_claim(c) for c in json.loads((folder / "claims.json").read_text())]
    provenance = json.loads((folder / "provenance.json").read_text())
    parts = [
        f"![{target} at scale {scale}](results/{target}-{scale}/{target}.png)",
        module.table(data),
        "### Claims",
        markdown(claims),
        tally(claims),
        "### Departures from scale `paper`",
        *_departures(provenance["sweeps"]),
        "### Made with",
        *(_provenance(sweep) for sweep in provenance["sweeps"]),
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _claim(fields: dict[str, Any]) -> Claim:
    measured = fields["measured"]
    if measured is not None:
        mean, low, high = (float("nan") if measured[k] is None else measured[k] for k in ("mean", "low", "high"))
        measured = Estimate(mean, low, high, int(measured["n"]), measured.get("freedom"))
    return Claim(**{**fields, "measured": measured})


def _departures(sweeps: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table per sweep, under its name where there are several."""
    for sweep in sweeps:
        if len(sweeps) > 1:
            yield f"`{name_of(sweep)}`:"
        yield _deviations(sweep["deviations_from_paper"])


def name_of(sweep: dict[str, Any]) -> str:
    """What a sweep of a `provenance.json` is called."""
    return str(sweep.get("sweep") or sweep.get("experiment") or sweep["config"]["algorithm"]["name"])


def _deviations(deviations: dict[str, list[Any]]) -> str:
    if not deviations:
        return "None: everything is as at scale `paper`."
    lines = ["| key | paper | here | ratio |", "|---|---|---|---|"]
    for key, (paper, ours) in deviations.items():
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (paper, ours))
        lines.append(f"| `{key}` | {paper} | {ours} | {f'{ours / paper:.3g}' if numbers and paper else '–'} |")
    return "\n".join(lines)


def _provenance(p: dict[str, Any]) -> str:
    def text(key: str) -> str:
        return ", ".join(str(v) for v in p[key])

    dirty = " (with uncommitted changes)" if "true" in p["git_dirty"] else ""
    wall = p["wall_seconds"]
    versions = ", ".join(f"{k} {text(k)}" for k in ("python", "torch", "pytorch-lightning", "hydra-core", "mlflow"))
    # A run that was continued with other code names both commits. Keys are renamed, so a command is one of its commit.
    commits = sorted({commit[:12] for commits_of_run in p["git_commit"] for commit in commits_of_run.split(", ")})
    threads = f"{p['config'].get('threads', 1)} thread(s) per run"
    return (
        f"`{p['command']}` at commit {', '.join(commits)}{dirty}; seeds "
        f"{text('seeds')}, on {text('cpu')} with {text('cores')} cores, {threads}; {_time(min(wall))} to "
        f"{_time(max(wall))} per run, {_time(sum(wall))} in all; {versions}. Everything else: `provenance.json` beside "
        f"the picture.\n{staleness.line(p)}"
    )


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
