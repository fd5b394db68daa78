"""An algorithm and a game that are no part of the package, each a file and a configuration."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from repro import evaluate
from repro.common.errors import ReproError
from repro.config.keys import training_key
from repro.games import load
from repro.plans.planning import plan
from repro.stored.trained import Trained
from repro.tracking import staleness
from tests.helpers.commands import call
from tests.helpers.training import advanced

OURS = ("game=one_card_poker", "algorithm=fictitious_play", "algorithm.iterations=40", "algorithm.snapshot_every=20")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_with_database")
def test_they_run_are_measured_and_can_be_measured_again(tmp_path):
    launcher = ("-m", "seed=0", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    done = call("--config-dir", "examples/conf", *launcher, *OURS, f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "mA/g" in done.stderr
    (run,) = plan(OURS, multirun=False, config_dir="examples/conf").runs
    trained = Trained.open(tmp_path, training_key(run.config))
    assert trained.snapshots.iterations == [20, 40]
    assert evaluate.run([run.key, "evaluation=costs"], str(tmp_path)) == 0
    # What code of theirs has become since is not looked at, and not said to be the same.
    code = {"git_commit": ["0" * 40], "git_dirty": ["false"]}
    (sentence,) = staleness.made_at([(run.config, replace(trained.record, made_with=code))])
    assert "is unknown: code outside of this package, such as examples." in sentence


def test_fictitious_play_gets_closer(tmp_path):
    from examples.fictitious_play import FictitiousPlay, FictitiousPlayConfig  # noqa: PLC0415
    from repro.evaluation import nash_conv  # noqa: PLC0415
    from repro.policies import TabularPolicy  # noqa: PLC0415
    from repro.policies.regret_matching import normalised  # noqa: PLC0415

    game = load("leduc")
    training = FictitiousPlay(game, FictitiousPlayConfig(iterations=200, snapshot_every=200), seed=0)
    values = [nash_conv(game, TabularPolicy(normalised(training.sums, game.uniform)))]
    for _ in range(200):
        training.advance()
    values.append(nash_conv(game, TabularPolicy(normalised(training.sums, game.uniform))))
    assert values[1] < 0.1 * values[0]


def test_keys_of_theirs_are_checked_like_ours():
    for wrong in ("algorithm.iteration=3", "game.rank=3"):
        with pytest.raises(ReproError, match=r"iteration|rank"):
            plan([*OURS, wrong], multirun=False, config_dir="examples/conf")
    with pytest.raises(ReproError, match="must be a folder"):
        plan(OURS, multirun=False, config_dir="examples/nowhere")


@pytest.mark.parametrize("game", ["leduc", "kuhn", "big_leduc"])
def test_a_subclass_has_the_values_of_the_algorithm_that_it_is_of(game):
    """A schema that is merged after the values would put its own defaults in their place."""

    def planned(*overrides: str) -> dict[str, object]:
        there = (*overrides, f"game={game}")
        return asdict(plan(there, multirun=False, config_dir="examples/conf").runs[0].config.algorithm)

    mine, theirs = planned("algorithm=power_deep_cfr"), planned("algorithm=deep_cfr")
    for other in (mine, theirs):
        del other["name"], other["module"], other["readouts"]
    assert mine.pop("exponent") == 2
    assert mine == theirs


def test_samples_count_with_a_power_of_their_iteration():
    def trained(*overrides: str) -> Any:
        size = ("game=kuhn", "algorithm.iterations=4", "algorithm.snapshot_every=4", "algorithm.value.steps=20")
        (run,) = plan([*size, *overrides], multirun=False, config_dir="examples/conf").runs
        config = run.config
        return advanced(config.algorithm.build(load("kuhn"), config), 4)

    deep, power, same = (
        trained(*each)
        for each in (
            ["algorithm=deep_cfr"], ["algorithm=power_deep_cfr"], ["algorithm=power_deep_cfr", "algorithm.exponent=1"],
        )
    )  # fmt: skip
    for player in range(2):
        ours, theirs = power.strategy_memories[player], deep.strategy_memories[player]
        assert torch.equal(ours._iteration[: ours.size], theirs._iteration[: theirs.size] ** 2)
        for a, b in ((power.value_memories, deep.value_memories), (same.strategy_memories, deep.strategy_memories)):
            assert torch.equal(a[player]._entries[: a[player].size], b[player]._entries[: b[player].size])


def test_what_counts_too_much_is_refused():
    with pytest.raises(ReproError, match=r"algorithm.exponent is 4 and algorithm.iterations 400"):
        plan(["algorithm=power_deep_cfr", "algorithm.exponent=4", "algorithm.iterations=400"], False, "examples/conf")
