"""Trainings once more, from what they left, and what is then not the same to the last bit.

A repetition is trained from the `config.yaml` of the training, and measured at its end as that was. Compared is all
that both left: metrics of the training, snapshots tensor by tensor, measurements.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from repro.common import durable
from repro.common.errors import ReproError
from repro.config.checks import check_with_game, game_for_checks
from repro.config.composed import CONF
from repro.config.keys import evaluation_key, training_key
from repro.config.schema import EVALUATIONS, Config
from repro.evaluation.base import Evaluation
from repro.figures import agreement
from repro.jobs.launching import Command
from repro.jobs.needs import check_here
from repro.plans.planned import Run
from repro.policies.snapshot import SnapshotFolder
from repro.stored.output import prepare_output
from repro.stored.results import evaluation_rows
from repro.stored.trained import Trained, folder_of, is_to_train, snapshots_of
from repro.subgames.data import SubgameDataConfig
from repro.tracking import provenance, staleness
from repro.tracking import record as records
from repro.tracking.rows import TrainingRows

_MOST_SHOWN = 12
"""Differences that are listed."""


# -- the same once more ----------------------------------------------------------------------------------------------


def repeated(trained: Trained, folder: Path, force: bool) -> Config:
    """The configuration that trains the same in another output folder, and measures it at its end as it was.

    Raises:
        ReproError: it is not possible here.
    """
    if folder.resolve() == trained.folder.resolve().parents[1]:
        raise ReproError(f"--to is {str(folder)!r}, where the run itself is; give another folder.")
    plain = OmegaConf.to_container(OmegaConf.load(CONF / "trainer" / "default.yaml"))
    assert isinstance(plain, dict)
    config = replace(
        trained.config, output_dir=str(folder.absolute()), tracking_uri=None, force=force,
        trainer={**{str(k): v for k, v in plain.items()}, **trained.config.trainer},
    )  # fmt: skip
    config.evaluation = dict(_evaluations(trained, config))
    check_with_game(config, game_for_checks(config))
    check_here([Run([config], {})])
    return config


def _evaluations(trained: Trained, config: Config) -> Iterator[tuple[str, Evaluation]]:
    """What was measured of a run after its last iteration and needs no other run, as its files describe it."""
    found: dict[str, Evaluation] = {}
    for path in sorted((trained.folder / "evaluations").glob("*.json")):
        content = records.load_json(path)
        if not isinstance(content, Mapping) or str(config.algorithm.iterations) not in content.get("rows", {}):
            continue
        described = dict(content.get("evaluation", {}))
        name, readout = str(described.pop("name", "")), str(content.get("readout", {}).get("name", ""))
        for schema in _schemas(described):
            evaluation: Evaluation = schema(**described, readouts=[readout], at="last")
            together = replace(config, evaluation={name: evaluation})
            if not evaluation.others and _is_of(together, name, readout, path.stem):
                alike = next((n for n, e in found.items() if e.is_like(evaluation)), f"{name}_{len(found)}")
                found[alike] = found[alike].joined(evaluation) if alike in found else evaluation
    yield from found.items()


def _schemas(described: Mapping[str, Any]) -> list[Any]:
    """The evaluations that have all these keys."""
    return [schema for schema in EVALUATIONS.values() if described.keys() <= schema.__dataclass_fields__.keys()]  # type: ignore[attr-defined]


def _is_of(config: Config, name: str, readout: str, key: str) -> bool:
    """Whether an evaluation of a read-out has this key, which its kind is part of."""
    known = readout in config.algorithm.readouts
    return known and evaluation_key(config, name, readout) == key


def _share_subgames(trained: Trained, config: Config, folder: Path) -> None:
    """Let networks that learn from stored subgames find them."""
    theirs, ours = trained.folder.parents[1] / "subgames", folder / "subgames"
    if isinstance(config.algorithm, SubgameDataConfig) and theirs.is_dir() and not ours.exists():
        folder.mkdir(parents=True, exist_ok=True)
        ours.symlink_to(theirs.absolute(), target_is_directory=True)


# -- what differs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """What is not the same to the last bit.

    Attributes:
        what: a metric, or a tensor of a snapshot.
        iteration: the first one at which it differs.
        then, now: the value there; of a tensor the one that is most apart.
        most: the largest difference of all iterations; of tensors of all elements.
    """

    what: str
    iteration: int
    then: float
    now: float
    most: float


@dataclass
class Comparison:
    """What two trainings left.

    Attributes:
        numbers: metrics that were compared.
        snapshots: iterations whose snapshots were.
        differences: between them, the earliest first.
    """

    numbers: int
    snapshots: int
    differences: list[Difference]


def compare(config: Config, then: Path, now: Path) -> Comparison:
    """Compare what a training and its repetition left in their folders, clocks aside.

    Args:
        config: of the repetition.
    """
    before, after = (TrainingRows(folder).read(is_finished=True) for folder in (then, now))
    found = dict[str, Difference]()
    numbers = _compare_rows(before, after, "", found)
    for name, evaluation in config.evaluation.items():
        for readout in evaluation.names(config.algorithm.readouts):
            rows = [evaluation_rows(folder, config, name, readout).rows for folder in (then, now)]
            last = config.algorithm.iterations
            both = [{last: each.get(last, {})} for each in rows]
            numbers += _compare_rows(both[0], both[1], f"{readout} ", found)
    snapshots = _compare_snapshots(snapshots_of(then), snapshots_of(now), found)
    return Comparison(numbers, snapshots, sorted(found.values(), key=lambda each: each.iteration))


def _note(found: dict[str, Difference], what: str, iteration: int, then: float, now: float) -> None:
    known = found.get(what)
    most = abs(now - then)
    found[what] = replace(known, most=max(known.most, most)) if known else Difference(what, iteration, then, now, most)


def _compare_rows(
    then: Mapping[int, Mapping[str, float]], now: Mapping[int, Mapping[str, float]], whose: str,
    found: dict[str, Difference],
) -> int:  # fmt: skip
    """How many numbers are in both; those that differ are added to `found`."""
    numbers = 0
    for step in sorted(then.keys() & now.keys()):
        for metric in sorted(then[step].keys() & now[step].keys() - set(agreement.CLOCKS)):
            numbers += 1
            if then[step][metric] != now[step][metric]:
                _note(found, f"{whose}{metric}", step, then[step][metric], now[step][metric])
    return numbers


def _compare_snapshots(then: SnapshotFolder, now: SnapshotFolder, found: dict[str, Difference]) -> int:
    """How many snapshots are in both; tensors and numbers of them that differ are added to `found`."""
    both = sorted(set(then.iterations) & set(now.iterations))
    for iteration in both:
        states = [dict(_flat(folder.read(iteration).state, "snapshot")) for folder in (then, now)]
        for what in states[0].keys() | states[1].keys():
            _compare_parts(what, iteration, states[0].get(what), states[1].get(what), found)
    if both:
        histories = [folder.history(both[-1]) for folder in (then, now)]
        for name in histories[0].keys() & histories[1].keys():
            for player in range(2):
                pairs = zip(histories[0][name][player], histories[1][name][player], strict=True)
                for iteration, (before, after) in enumerate(pairs, start=1):
                    _compare_parts(f"network {name} of player {player}", iteration, before, after, found)
    return len(both)


def _flat(content: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Everything in nested mappings and sequences, by names with slashes."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _flat(value, f"{name}/{key}")
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _flat(value, f"{name}/{number}")
    elif "wall_seconds" not in name:
        yield name, content


def _compare_parts(what: str, iteration: int, then: Any, now: Any, found: dict[str, Difference]) -> None:
    if isinstance(then, Tensor) and isinstance(now, Tensor) and then.shape == now.shape:
        if not torch.equal(then, now):
            apart = (now.double() - then.double()).abs().flatten()
            place = int(apart.argmax())
            _note(found, what, iteration, float(then.flatten()[place]), float(now.flatten()[place]))
    elif isinstance(then, Tensor) or isinstance(now, Tensor) or then != now:
        numbers = [float(v) if isinstance(v, int | float) else float("nan") for v in (then, now)]
        _note(found, what, iteration, *numbers)


# -- telling ---------------------------------------------------------------------------------------------------------


def tell(trained: Trained, config: Config) -> bool:
    """Print how a training and its repetition compare; whether they are the same to the last bit."""
    key, now = trained.folder.name, folder_of(config)
    both = compare(config, trained.folder, now)
    print(f"{key}: {both.numbers} numbers and {both.snapshots} snapshots in both")
    if not both.differences and both.numbers and both.snapshots:
        print(f"{key}: the same to the last bit")
        return True
    if not both.differences:
        print(f"{key}: there is too little in both to say whether they are the same")
        return False
    first = both.differences[0].iteration
    print(f"{key}: not the same; {len(both.differences)} parts differ, first at iteration {first}")
    for each in both.differences[:_MOST_SHOWN]:
        share = f", {each.most / abs(each.then):.2g} of it" if each.then else ""
        print(f"  {each.what}, iteration {each.iteration}: {each.then:.8g} then, {each.now:.8g} now; "
              f"at most {each.most:.2g} apart{share}")  # fmt: skip
    for why in _reasons(trained, config):
        print(f"  they need not be the same: {why}")
    return False


def _reasons(trained: Trained, config: Config) -> Iterator[str]:
    """Why numbers of two trainings of one configuration may differ."""
    made = trained.record.made_with
    machine = agreement.other_kind(made, {**provenance.hardware(), **provenance.versions()})
    if machine:
        yield f"another kind of machine ({'; '.join(machine)})"
    (code,) = staleness.made_at([(config, trained.record)])
    if "changed" in code:
        yield f"it was {code}"
    if trained.record.checkpoints not in ("", trained.folder.name):
        yield f"it was trained together with other seeds ({trained.record.checkpoints}), which rounds otherwise"


# -- both ------------------------------------------------------------------------------------------------------------


def repeat(folders: Mapping[str, Path], output: str, force: bool) -> int:
    """Repeat, compare and tell; returns the exit status: 0 if all are the same to the last bit, else 1.

    Args:
        folders: of each training's repetition, by its key.

    Raises:
        ReproError: one is not finished, or cannot be repeated here.
    """
    trainings = {key: Trained.open(output, key) for key in folders}
    for trained in trainings.values():
        trained.check_finished()
    configs = {key: repeated(trained, folders[key], force) for key, trained in trainings.items()}
    same = []
    for key, trained in trainings.items():
        folder, config = folders[key], configs[key]
        if training_key(config) != key:
            print(f"warning: today its key is {training_key(config)}, so its configuration has another meaning now.",
                  file=sys.stderr)  # fmt: skip
        prepare_output(str(folder))
        _share_subgames(trained, config, folder)
        durable.write(folder / "rerun_of.txt", f"{trained.folder}\n".encode())
        if not (config.force or is_to_train(config)):
            print(f"{key} has been repeated before, in {folder_of(config)}; --force trains it once more.")
        if Command(folder, None, None).do([[Run([config], trained.record.labels)]]):
            print(f"error: the repetition of {key} did not finish.", file=sys.stderr)
            same.append(False)
            continue
        same.append(tell(trained, config))
    return 0 if all(same) else 1
