"""Pictures and verdicts from a target's data: drawn, drawn again from the exported CSV alone, and published."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from repro.common import durable
from repro.common.errors import ReproError, told_as
from repro.evaluation.statistics import digits
from repro.figures import agreement, frame, page, published
from repro.figures import claims as claims_of
from repro.figures.targets import ROOT, Options, module_of
from repro.tracking.provenance import hardware
from repro.tracking.repetition import KEY


def draw(target: str, data: pd.DataFrame, provenance: dict[str, Any], folder: Path) -> None:
    """Write `data.csv`, `provenance.json`, png, pdf and `claims.json`, and print the verdicts."""
    module, scale = module_of(target), str(data["scale"].iloc[0])
    files, claims = _drawn(module, data)
    provenance = {**provenance, **_beside(module, scale)}
    _make(folder)
    # Written last, so that whoever finds them finds what belongs to them.
    (folder / "claims.json").unlink(missing_ok=True)
    frame.write(data, folder / frame.DATA)
    durable.write(folder / "provenance.json", (json.dumps(provenance, indent=2) + "\n").encode())
    _write_drawn(files, claims, folder, target, scale)


def _drawn(module: ModuleType, data: pd.DataFrame) -> tuple[dict[str, bytes], Sequence[claims_of.Claim]]:
    """The picture's files by their endings, and the verdicts."""
    figure, files = module.draw(data), dict[str, bytes]()
    for ending in ("png", "pdf"):
        content = io.BytesIO()
        # No creation date in the file: the same data gives the same bytes.
        figure.savefig(content, format=ending, metadata={"CreationDate": None} if ending == "pdf" else None)
        files[ending] = content.getvalue()
    return files, module.claims(data)


def _write_drawn(
    files: dict[str, bytes], claims: Sequence[claims_of.Claim], folder: Path, target: str, scale: str
) -> None:
    _make(folder)
    for ending, content in files.items():
        durable.write(folder / f"{target}.{ending}", content)
    claims_of.write(claims, folder / "claims.json")
    _print_claims(claims)
    _print_published_beside(claims, results_of(target, scale))
    print(f"figure, data and verdicts: {folder}")


def _make(folder: Path) -> None:
    """Make a folder.

    Raises:
        ReproError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReproError(f"{folder} cannot be made ({error.strerror}); give another folder by --output.") from error


def _print_claims(claims: Sequence[claims_of.Claim]) -> None:
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    table = Table("claim", "paper", "ours, mean [95% CI]", "verdict", box=None)
    testable = [c for c in claims if c.verdict != claims_of.NOT_TESTABLE]
    for c in testable:
        paper = "" if c.paper is None else f"{digits(c.paper)}"
        table.add_row(c.statement, paper, f"{c.measured} {c.unit}" if c.measured else "", c.verdict)
    if testable:
        console(sys.stdout).print(table)
    if len(testable) < len(claims):
        print(f"{len(claims) - len(testable)} of {len(claims)} claims are not testable at this scale (see claims.json)")
    if testable:
        print(claims_of.tally(testable))


def _print_published_beside(claims: Sequence[claims_of.Claim], results: Path) -> None:
    """Say which claims are judged otherwise than in what is published at the same scale, if anything is."""
    if not (results / "claims.json").is_file():
        return
    where = f"paper_figures/results/{results.name}"
    try:
        before = agreement.published_verdicts(results)
        sweeps = json.loads((results / "provenance.json").read_text())["sweeps"]
        made_on = {str(cpu) for sweep in sweeps for cpu in sweep["cpu"]}
    except (OSError, ValueError, TypeError, LookupError) as error:
        print(f"published verdicts, {where}, cannot be read ({type(error).__name__}: {error})")
        return
    found = agreement.differing({"here": agreement.verdicts(claims), "published": before})
    print(f"claims that are judged otherwise than in {where}: {len(found) or 'none'}")
    for claim, (here, then) in found.items():
        print(f"  {claim}: here {here}, published {then}")
    if found and made_on - {this := hardware()["cpu"]}:
        there = ", ".join(sorted(made_on))
        print(f"  that was made on {there}; on another processor ({this}) numbers round otherwise, and drift")


def draw_again(target: str, options: Options) -> None:
    """Draw from the exported CSV alone, or where the target was not made from the published one.

    Raises:
        ReproError: there is none, or it does not hold what the target is drawn from.
    """
    folder, module, path = options.folder(target), module_of(target), _newest_data(target, options)
    data = _data_of(path, target, options)
    try:
        files, claims = _drawn(module, data)
    except Exception as error:  # What draws runs' results can fail in any way on what is none.
        raise ReproError(
            f"{path} does not hold what {target} is drawn from ({type(error).__name__}); make the figure again, which "
            "repeats no finished run."
        ) from error
    _write_drawn(files, claims, folder, target, options.scale)


Exported = tuple[pd.DataFrame, dict[str, Any]]
"""A target's data, and its `provenance.json`."""


def exported(target: str, options: Options) -> Exported:
    """What was exported of a target, or where it was not made what is published.

    Raises:
        ReproError: there is none, or it is damaged.
    """
    return of_folder(_newest_data(target, options).parent, target, options)


def of_folder(folder: Path, target: str, options: Options) -> Exported:
    """What a folder has of a target.

    Raises:
        ReproError: it is damaged.
    """
    data, file = _data_of(frame.data_file(folder), target, options), folder / "provenance.json"
    with told_as(lambda error: f"{file} cannot be read ({type(error).__name__}); make the figure again."):
        provenance = dict(json.loads(file.read_text()))
        list(provenance["sweeps"])
    return data, provenance


def _newest_data(target: str, options: Options) -> Path:
    """The exported CSV, or the published one where the target was not made.

    Raises:
        ReproError: there is neither.
    """
    path = frame.data_file(options.folder(target))
    if path.exists():
        return path
    published = frame.data_file(results_of(target, options.scale))
    if not published.exists():
        raise ReproError(
            f"{path} does not exist, and nothing is published of {target} at scale {options.scale}; make the figure "
            "first."
        )
    print(f"{target} was not made in {options.output}: drawn from {published.relative_to(ROOT)}")
    return published


def _data_of(path: Path, target: str, options: Options) -> pd.DataFrame:
    """A target's data from a file.

    Raises:
        ReproError: it holds something else.
    """
    data = frame.read(path)
    for column, needed in (("target", target), ("scale", options.scale)):
        others = sorted(set(data[column]) - {needed})
        if others:
            raise ReproError(f"{path} holds data of {column} {others[0]!r}, not of {needed!r}.")
    return data


def results_of(target: str, scale: str) -> Path:
    """Where a target is published."""
    return ROOT / "paper_figures" / "results" / f"{target}-{scale}"


def publish(target: str, options: Options) -> None:
    """Copy a drawn figure to `paper_figures/results/`, and bring its page up to date.

    What was drawn again from published data keeps these, and what they were made with. What repeating published runs
    has found stays with runs that stay.

    Raises:
        ReproError: it is not drawn, or data, verdicts or provenance are damaged, or its page has no place for it, or
            no finding, or it lacks seeds that are published, and `force` does not say that they may go.
    """
    if options.scale == "smoke":
        raise ReproError("--scale is 'smoke', which judges nothing; its data are not published.")
    source, results = options.folder(target), results_of(target, options.scale)
    if not (source / "claims.json").exists():
        raise ReproError(
            f"{source} holds no finished figure; make it first with `make {target} SCALE={options.scale}`."
        )
    redrawn = not frame.data_file(source).is_file() and frame.data_file(results).is_file()
    names = [f"{target}.png", f"{target}.pdf", "claims.json"]
    names += [] if redrawn else [frame.data_file(source).name, "provenance.json"]
    for name in (name for name in names if not (source / name).is_file()):
        raise ReproError(
            f"{source / name} does not exist; draw it again with `make draw TARGET={target} SCALE={options.scale}`."
        )
    page.finding(target)  # Which the README's table has, too: refused before anything is copied.
    if not redrawn and not options.force:
        of_scale = [s.name for s in module_of(target).SWEEPS if options.scale in (s.only or (options.scale,))]
        _check_nothing_is_lost(source, results, of_scale)
    with tempfile.TemporaryDirectory() as folder:
        # All of it together, as it will be: what the page cannot be made of is refused before anything is copied.
        whole = Path(folder)
        for name in names + ([frame.data_file(results).name, "provenance.json"] if redrawn else []):
            shutil.copy((source if name in names else results) / name, whole / name)
        if not redrawn and (results / "provenance.json").is_file():
            _keep_repetitions(whole / "provenance.json", results / "provenance.json")
        _check_beside(whole / "provenance.json", module_of(target), options.scale, redrawn)
        text = page.filled_in(target, options.scale, module_of(target), whole)
        results.mkdir(parents=True, exist_ok=True)
        for name in {*names, "provenance.json"} - {frame.data_file(source).name}:
            shutil.copy(whole / name, results / name)
    if not redrawn:
        frame.publish(source, results)
    durable.write(page.page_of(target), text.encode())
    print(f"published to {results} and paper_figures/{target}.md")


def _check_nothing_is_lost(source: Path, results: Path, sweeps: Collection[str]) -> None:
    """Refuse to publish less than is published: without one of the target's sweeps, or fewer seeds of one.

    Args:
        sweeps: of the target, as they are today.

    Raises:
        ReproError: some are lacking.
    """
    if not frame.data_file(results).is_file():
        return
    new, old = (
        frame.read(frame.data_file(folder)).groupby("sweep").seed.agg(set).to_dict() for folder in (source, results)
    )
    for sweep in old.keys() & {*new, *sweeps}:
        if lost := sorted(old[sweep] - new.get(sweep, set())):
            how = "PUBLISHED=1" if sweep in new else f"SWEEP={sweep}"
            raise ReproError(
                f"{source} lacks seed {', '.join(map(str, lost))}{f' of {sweep}' if sweep else ''}, published in "
                f"{results.relative_to(ROOT)}; make it with {how}, or publish it with FORCE=1 all the same."
            )


def _keep_repetitions(new: Path, old: Path) -> None:
    """Take over into a `provenance.json` what another one says of the repetition of runs that both have."""
    with told_as(lambda error: f"{new} or {old} cannot be read ({type(error).__name__})."):
        provenance, before = (json.loads(file.read_text()) for file in (new, old))
    found = {_made(part): part[KEY] for part in before["sweeps"] if KEY in part and "rerun" in part}
    for part in provenance["sweeps"]:
        if "rerun" in part and _made(part) in found:
            part.setdefault(KEY, found[_made(part)])
    new.write_text(json.dumps(provenance, indent=2) + "\n")


def _beside(module: ModuleType, scale: str) -> dict[str, Any]:
    """What a `provenance.json` has of published data of other targets that a target is drawn and judged beside.

    A target that is has a function `beside`: at a scale, the names of folders in `paper_figures/results`.

    Raises:
        ReproError: they cannot be read.
    """
    return {"beside": [_published_data(name) for name in module.beside(scale)]} if hasattr(module, "beside") else {}


def _published_data(name: str) -> dict[str, Any]:
    """Which data a folder of published results has."""
    folder = published.RESULTS / name
    with told_as(lambda error: f"{folder} cannot be read ({type(error).__name__})."):
        sweeps = json.loads((folder / "provenance.json").read_text())["sweeps"]
        commits = sorted({commit for sweep in sweeps for commit in sweep["git_commit"]})
        data = hashlib.sha256(frame.data_file(folder).read_bytes()).hexdigest()
    return {"results": name, "git_commit": commits, "data_sha256": data}


def _check_beside(file: Path, module: ModuleType, scale: str, drawn_from_published: bool) -> None:
    """Refuse a picture that was drawn beside other data than are published now.

    Of what was drawn from published data it is not recorded; that is done here.

    Raises:
        ReproError: it was.
    """
    with told_as(lambda error: f"{file} cannot be read ({type(error).__name__})."):
        provenance = json.loads(file.read_text())
    now = _beside(module, scale)
    if drawn_from_published:
        file.write_text(json.dumps({**provenance, **now}, indent=2) + "\n")
    elif now and provenance.get("beside") != now["beside"]:
        names = ", ".join(part["results"] for part in now["beside"])
        raise ReproError(f"what is published of {names} has changed since this was drawn; make it once more.")


def _made(part: Mapping[str, Any]) -> str:
    """Which runs a sweep of a `provenance.json` has, and of which code."""
    return json.dumps([part.get("sweep"), sorted(page.names_of_runs(part)), sorted(part["git_commit"])])
