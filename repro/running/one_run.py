"""One run: from a checked configuration to a training that is finished and measured as asked.

A training that is finished is not trained again; what of its evaluations lacks is measured from its snapshots. Only
where something is to be trained is Lightning imported (`repro.running.training`). What is kept of each training is in
`repro.running.one_seed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from repro.common.faults import disk_faults_told
from repro.common.importing import quicker_imports
from repro.config.checks import check_device, check_with_game, game_of
from repro.config.schema import Config
from repro.running.one_seed import Seed, headline_of, place_of
from repro.stored import leftovers
from repro.stored.trained import is_to_train
from repro.tracking import checkpoints
from repro.tracking.record import FINISHED, SKIPPED, RunRecord


@disk_faults_told()
def do(configs: Sequence[Config], labels: Mapping[str, str], folder: Path, record: RunRecord, title: str = "") -> str:
    """Do a run, or continue it, or measure what lacks of it; returns its state.

    Args:
        configs: one per seed; of several, those are done together that are not finished.
        labels: target -> scale, of what asked for it.
        folder: where checkpoints are: the training's, or of several seeds one for all.
        record: of the run: that of the training itself, or one for all seeds.
        title: of the run.

    Raises:
        ReproError: the run cannot be done as asked.
        StorageError: it was interrupted, because a disk or MLflow does not work now; it can be continued.
    """
    config = configs[0]
    torch.set_num_threads(config.threads)
    with threadpool_limits(config.threads):
        if any(map(is_to_train, configs)):
            check_device(config)  # Before anything is noted, or what is there set aside.
            with quicker_imports():  # And before there is a game, which would be kept with what is imported.
                import repro.running.training  # noqa: F401, PLC0415  (imports Lightning, which takes seconds)
        game = game_of(config)
        check_with_game(config, game)
        seeds = [Seed.open(game, one, labels, record if len(configs) == 1 else None, title) for one in configs]
        for seed in filter(Seed.is_trained_unnoted, seeds):
            seed.note_trained()
        state = SKIPPED
        for together in _begun_together([seed for seed in seeds if not seed.record.trained]):
            from repro.running.training import fit  # noqa: PLC0415  (which is imported by now)

            fit(game, together, folder, record)
            state = FINISHED
        for each in (folder, *(seed.folder for seed in seeds)):
            leftovers.remove_useless_checkpoints(each)
        for seed in seeds:
            state = FINISHED if seed.complete() else state
    record.headline = headline_of(seeds)
    return state


def _begun_together(seeds: Sequence[Seed]) -> list[Sequence[Seed]]:
    """Seeds that are not trained, in groups: those that one checkpoint is of go on from it, and the rest together."""
    by_place: dict[Path, list[Seed]] = {}
    for seed in seeds:
        by_place.setdefault(seed.folder.parent / seed.record.checkpoints, []).append(seed)
    whole = [group for place, group in by_place.items() if place == place_of(group) and checkpoints.kept(place)]
    rest = [seed for seed in seeds if not any(seed in group for group in whole)]
    return [*whole, *filter(None, [rest])]
