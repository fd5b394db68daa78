"""Published data held against what today's code and rules give, as `repro.verify` asks for it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from repro.common import durable
from repro.common.errors import ReproError, told_as
from repro.comparing.shortening import Request, shortened
from repro.config.keys import training_config
from repro.figures import agreement, frame, page
from repro.figures.targets import ROOT, SCALES, PlannedSweep, module_of
from repro.tracking import provenance as provenance_of_code
from repro.tracking import staleness
from repro.tracking.repetition import KEY, Repetition

if TYPE_CHECKING:
    from repro.plans.planned import Run


Published = tuple[str, str, Path]
"""A target, a scale, and the folder of what is published of it."""


def _repeat(sweeps: Sequence[PlannedSweep], jobs: int) -> bool:
    """Do runs, anew if they are there; returns whether all finished."""
    from repro.jobs.launching import Command  # noqa: PLC0415  (--stale needs none of this)
    from repro.jobs.needs import check_here  # noqa: PLC0415
    from repro.plans.planned import Run, stages, union  # noqa: PLC0415
    from repro.stored.output import prepare_output  # noqa: PLC0415  (--stale needs none of this)

    runs: list[Run] = union([Run([config], {}) for sweep in sweeps for config in sweep.configs])
    check_here(runs)
    first = runs[0].config
    launcher = None if jobs == 1 else ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={jobs}"]
    return Command(prepare_output(first.output_dir), first.tracking_uri, launcher).do(stages(runs)) == 0


# -- comparing -------------------------------------------------------------------------------------------------------


def verify(request: Request) -> int:
    """Repeat, compare, tell and keep; returns the exit status: 0 if numbers were judged and all agrees, else 1.

    Raises:
        ReproError: nothing is published, it is damaged, nothing of it can be repeated, or it is to be kept of code that
            is in no commit.
    """
    data, published = _published(request)
    provenance = published["sweeps"]
    commit = _commit() if request.record else ""
    short = shortened(request, data, provenance)
    if not short.sweeps:
        raise ReproError(
            f"nothing of {request.target} at scale {request.options.scale} can be repeated: {' '.join(short.left_out)}"
        )
    if not _repeat(short.sweeps, request.options.jobs):
        print("error: a run did not finish; nothing was compared.", file=sys.stderr)
        return 1
    print(f"{request.target} at scale {request.options.scale}, against {request.published.relative_to(ROOT)}:")
    for sentence in short.left_out:
        print(f"- {sentence}")
    found = [_compare(sweep, data, request, provenance) for sweep in short.sweeps]
    agree = [agreement.agree(both) for both in found]
    if request.record:
        # Published again while runs were repeated, it has other runs perhaps.
        _, newest = _published(request)
        for sweep, both in zip(short.sweeps, found, strict=True):
            _keep(sweep, both, commit, newest["sweeps"], provenance)
        durable.write(request.published / "provenance.json", (json.dumps(newest, indent=2) + "\n").encode())
    claims = _claims_agree(request.target, request.published, data)
    if False in agree or not claims:
        print("published data and today's code do not agree")
    elif True not in agree:
        print("no number was judged, so nothing is known of whether today's code gives the published data")
    else:
        unknown = "" if None not in agree else "; of some sweeps nothing was judged"
        print(f"everything that was judged agrees{unknown}")
    return 0 if claims and True in agree and False not in agree else 1


def _commit() -> str:
    """The commit of the code that runs.

    Raises:
        ReproError: it is in none.
    """
    changed = provenance_of_code.git("status", "--porcelain", "--", "repro", "conf")
    commit = provenance_of_code.head()
    if commit is None or changed is None or changed.strip():
        raise ReproError("--record keeps the commit that repeated runs, but files in repro/ or conf/ are in none.")
    return commit


def _published(request: Request) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The published data, and their `provenance.json`."""
    folder = request.published
    if not folder.is_dir():
        there = ", ".join(path.name.removeprefix(f"{request.target}-") for path in _scales(request.target))
        raise ReproError(
            f"of {request.target}, nothing is published at scale {request.options.scale}"
            f"{f' (but at {there})' if there else ''}."
        )
    data = frame.read(frame.data_file(folder))
    with told_as(lambda error: f"{folder / 'provenance.json'} cannot be read ({type(error).__name__})."):
        provenance = json.loads((folder / "provenance.json").read_text())
        return data, {**provenance, "sweeps": list(provenance["sweeps"])}


def _scales(target: str) -> list[Path]:
    folders = (ROOT / "paper_figures" / "results" / f"{target}-{scale}" for scale in SCALES)
    return [folder for folder in folders if folder.is_dir()]


def _here() -> Mapping[str, str]:
    return {**provenance_of_code.hardware(), **provenance_of_code.versions()}


def why_not_exact(sweep: PlannedSweep, provenance: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a sweep's numbers need not be the published ones to the last digit; nothing if they must be."""
    config = training_config(sweep.configs[0])
    then = agreement.provenance_of(sweep.name, config, provenance)
    if then is None:
        return ["which of the published runs these are is not recorded"]
    machine = agreement.other_kind(then, _here())
    settings = agreement.other_settings(then["config"], config)
    code = staleness.staleness(then)
    return [
        *([f"another kind of machine ({'; '.join(machine)})"] if machine else []),
        *([f"other settings ({'; '.join(settings)})"] if settings else []),
        *([] if code.word == "no" else [f"code that has changed: {code}"]),
    ]


def _compare(
    sweep: PlannedSweep, published: pd.DataFrame, request: Request, provenance: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """Tell how a sweep's new numbers and the published ones agree; returns what was compared, empty if nothing was."""
    from repro.figures.collecting import measured  # noqa: PLC0415

    first = sweep.configs[0]
    ends = sorted({config.algorithm.iterations for config in sweep.configs})
    seeds = sorted({config.seed for config in sweep.configs})
    print(
        f"- {sweep.name or first.algorithm.name}, seed {', '.join(map(str, seeds))}, up to iteration "
        f"{' or '.join(map(str, ends))}: ",
        end="",
    )
    rows = agreement.of_sweep(published, sweep.name, first.algorithm.name)
    new, why = measured(request.target, request.options.scale, [sweep]), why_not_exact(sweep, provenance)
    both = agreement.compared(rows, new, exact=not why)
    if both.empty:
        print("no number is in both")
        return both
    print("\n".join(agreement.told(both)))
    if why:
        print(f"  they need not be the same in all digits: {'; '.join(why)}")
    else:
        print("  machine, versions, settings and code are the same, so numbers must be")
    left = agreement.without_partner(rows, new, both)
    if left:
        print(f"  {left} published numbers of these seeds and iterations were not measured anew")
    if agreement.agree(both) is None:
        print("  nothing of it is judged")
    return both


def _repetition(both: pd.DataFrame, commit: str, iterations: Sequence[int]) -> Repetition | None:
    """What `agreement.compared` found; None if no number was judged."""
    agrees = agreement.agree(both)
    if agrees is None:
        return None
    counts = both.verdict.value_counts()
    numbers = {verdict: int(counts[verdict]) for verdict in agreement.VERDICTS if verdict in counts}
    return Repetition(commit, sorted({int(seed) for seed in both.seed}), iterations, numbers, agrees)


def _keep(
    sweep: PlannedSweep, both: pd.DataFrame, commit: str, newest: Sequence[dict[str, Any]],
    compared_with: Sequence[Mapping[str, Any]],
) -> None:  # fmt: skip
    """Put what was found into a sweep's provenance, or tell why not."""
    config = training_config(sweep.configs[0])
    then, before = (agreement.provenance_of(sweep.name, config, each) for each in (newest, compared_with))
    ends = {config.algorithm.iterations for config in sweep.configs}
    repetition = _repetition(both, commit, sorted(ends))
    why = ""
    if then is None or before is None:
        why = "which of the published runs these are is not recorded"
    elif {**then, KEY: None} != {**before, KEY: None}:
        why = "other runs were published meanwhile"
    elif repetition is None:
        why = "no number was judged"
    else:
        then[KEY] = repetition.to_keep()
        return
    print(f"- nothing is kept of {sweep.name or sweep.configs[0].algorithm.name}: {why}")


# -- claims ----------------------------------------------------------------------------------------------------------


def verify_claims(published: Sequence[Published]) -> int:
    """Hold the published verdicts of targets against those of today's rules; returns the exit status."""
    agree = []
    for target, scale, folder in published:
        print(f"{target} at scale {scale}:")
        agree.append(_claims_agree(target, folder, frame.read(frame.data_file(folder))))
    print("all verdicts are those of today's rules" if all(agree) else "some verdicts are not those of today's rules")
    return 0 if all(agree) else 1


def _claims_agree(target: str, folder: Path, data: pd.DataFrame) -> bool:
    """Tell how published verdicts and those of today's rules on the published data agree; returns whether they do."""
    published = agreement.published_verdicts(folder)
    try:
        today = agreement.verdicts(module_of(target).claims(data))
    except Exception as error:  # What judges runs' results can fail in any way on what is none.
        print(f"- claims: today's rules cannot judge the data ({type(error).__name__}); they are of an earlier version")
        return False
    found = agreement.differing({"published": published, "today's rules": today})
    print(f"- claims: {len(published)} published, {len(found)} judged otherwise by today's rules")
    for claim, (before, now) in found.items():
        print(f"  {claim}: published: {before}, today's rules: {now}")
    return not found


# -- staleness -------------------------------------------------------------------------------------------------------


def published(asked: Sequence[str], scale: str | None) -> list[Published]:
    """What is published of these targets, at one scale or all of them."""
    scales = [scale] if scale else SCALES
    return [
        (target, at, folder)
        for folder in staleness.results()
        for target, _, at in [folder.name.rpartition("-")]
        if target in asked and at in scales
    ]


def list_stale(published: Sequence[Published]) -> None:
    """Print of every published sweep whether code that determines its runs has changed since they were made."""
    for target, scale, folder in published:
        sweeps: dict[str, list[str]] = {}
        every = json.loads((folder / "provenance.json").read_text())["sweeps"]
        names = Counter(map(page.name_of, every))
        for sweep in every:
            name = page.name_of(sweep)
            if names[name] > 1:
                name += f" seed {', '.join(map(str, sweep['seeds']))}"
            answer = f"{staleness.staleness(sweep)}.{staleness.since_repeated(sweep)}"
            sweeps.setdefault(answer, []).append(name)
        for answer, alike in sweeps.items():
            print(f"{target} at scale {scale}, {', '.join(dict.fromkeys(alike))}: {answer}")


def refresh(published: Sequence[Published]) -> None:
    """Fill in the pages of what is published again, from the published files alone."""
    for target, scale, folder in published:
        text = page.filled_in(target, scale, module_of(target), folder)
        durable.write(page.page_of(target), text.encode())
        print(f"paper_figures/{target}.md says what is so as of the last commit, at scale {scale}")
