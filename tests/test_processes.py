"""One training by two processes: what they share, what each has of its own, and that it can be stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.distributed
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch import Tensor

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.memory import Window
from repro.algorithms.minibatches import Chunked, ManySteps, Minibatch
from repro.algorithms.ranks import ALONE, Ranks
from repro.algorithms.regression import fit
from repro.algorithms.strategies import OpeningTable
from repro.common.errors import ReproError
from repro.common.stopping import asked_by, stopped_by_signals
from repro.config import NetworkConfig
from repro.config.keys import from_plain, training_config, training_key
from repro.games import load
from repro.networks.optimizers import FlatAdam
from repro.running.executing import execute_here
from repro.running.processes import Processes
from repro.running.saving import Checkpoints
from repro.running.training import follow
from repro.tracking import checkpoints
from repro.tracking import record as records
from tests.helpers.commands import SMALL, configs, executed, only_folder, planned, results, tracked
from tests.helpers.deep_cfr import small_config, small_model
from tests.helpers.draws import seeded
from tests.helpers.holdem import NETWORK, game_of
from tests.helpers.networks import SHAPES, build, problem
from tests.helpers.training import advanced, config_of
from tests.test_bad_input import refused
from tests.test_steps import STEPS, chunk

TWO = (*SMALL, "algorithm.iterations=10", "algorithm.value.steps=10", "algorithm.average.steps=8", "trainer.devices=2")
_HUNG_SECONDS = 900


def on_ranks(does: Callable[[int], object]) -> list[int]:
    """What two processes end with that do something, told their ranks; they are forked, which saves imports."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(_HUNG_SECONDS)
                os.environ |= {
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
                    "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1",
                }  # fmt: skip
                does(rank)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)  # Or this process would go on with the tests.
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def found_on_ranks(folder: Path, finds: Callable[[Ranks], Any]) -> list[Any]:
    """What two processes in one group find, each told its rank."""

    def found(rank: int) -> None:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
        torch.save(finds(Ranks(rank, 2)), folder / f"{rank}.pt")

    assert on_ranks(found) == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


# -- steps -----------------------------------------------------------------------------------------------------------


def halves() -> list[ManySteps]:
    """What two ranks train on: all rows of a table, with weights and targets of their own."""
    x, legal, _, _ = problem(SHAPES[3])
    network = build("value", "sd_cfr", 2, SHAPES[3])
    first = chunk(network, x, legal)
    draw = seeded(2)
    weight, target = (torch.rand(part.shape, generator=draw) for part in (first.weight, first.target))
    return [first, ManySteps(STEPS, weight, target, torch.rand(STEPS, generator=draw))]


def whole() -> ManySteps:
    """Both halves' rows as one minibatch, grouped by row of the table."""
    one, other = halves()
    weight = (one.weight + other.weight) / 2
    target = (one.weight[..., None] * one.target + other.weight[..., None] * other.target) / (2 * weight[..., None])
    squares = sum((part.weight[..., None] * part.target.square()).sum((1, 2)) for part in (one, other)) / 2
    constant = (one.constant + other.constant) / 2 + squares - (weight[..., None] * target.square()).sum((1, 2))
    return ManySteps(STEPS, weight, target, constant)


def fitted(steps: ManySteps, compiled: bool, ranks: Ranks = ALONE) -> tuple[Tensor, float]:
    x, legal, _, _ = problem(SHAPES[3])
    network = build("value", "sd_cfr", 2, SHAPES[3])
    optimizer = FlatAdam(network, 1e-2, 0.5)
    batches = Chunked(iter([steps]))
    given: Iterator[Minibatch] = batches if compiled else iter(list(batches))
    loss = fit(network, optimizer, given, STEPS, x, legal, optimizer.step, schedule="cosine", ranks=ranks)
    return optimizer.flat.detach(), loss


def test_a_step_is_that_of_the_whole_minibatch(tmp_path):
    both = found_on_ranks(
        tmp_path, lambda ranks: [fitted(halves()[ranks.rank], compiled, ranks) for compiled in (True, False)]
    )
    for compiled, one, other in zip((True, False), *both, strict=True):
        assert torch.equal(one[0], other[0]), "the ranks' networks differ"
        assert one[1] == other[1]
        parameters, loss = fitted(whole(), compiled)
        begin = FlatAdam(build("value", "sd_cfr", 2, SHAPES[3]), 1e-2).flat.detach()
        assert float((one[0] - parameters).norm()) < 1e-3 * float((parameters - begin).norm())
        assert one[1] == pytest.approx(loss, rel=1e-5)


class Unequal(Ranks):
    """Two ranks, of which the other one has seen three times as many samples."""

    def each(self, number: int) -> list[int]:
        return [number, 3 * number]


def test_rows_weigh_by_how_many_samples_their_rank_has_seen(leduc):
    model = small_model(leduc)
    advanced(model, 1)
    alone = sum(float(batch.weight.sum()) for batch in model.begin_fit("value", 0))
    model.ranks = Unequal(0, 2)
    shared = sum(float(batch.weight.sum()) for batch in model.begin_fit("value", 0))
    # The mean over the ranks weighs each half: a quarter of the samples has half the weight that it would have then.
    assert shared == pytest.approx(alone / 2, rel=1e-5)


def test_of_full_windows_rows_weigh_the_same_whatever_their_rank_has_seen(leduc):
    model = small_model(leduc, memory="window", loss_weight="uniform")
    advanced(model, 4)
    memory = model.value_memories[0]
    assert isinstance(memory, Window)
    assert memory.stands_for == memory.size == 500 < memory.seen

    class Other(Ranks):
        def each(self, number: int) -> list[int]:
            return [number, 500]

    alone = sum(float(batch.weight.sum()) for batch in model.begin_fit("value", 0))
    model.ranks = Other(0, 2)
    assert sum(float(batch.weight.sum()) for batch in model.begin_fit("value", 0)) == pytest.approx(alone, rel=1e-5)


def test_no_rank_fits_where_one_has_nothing_to_learn_from(leduc):
    class Empty(Ranks):
        def each(self, number: int) -> list[int]:
            return [number, 0]

    model = small_model(leduc)
    advanced(model, 1)
    model.ranks = Empty(0, 2)
    with pytest.raises(Exception, match=r"algorithm\.traversals is 100, and by iteration 1 they met no decision"):
        model.begin_fit("value", 0)


# -- iterations ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def leduc():
    return load("leduc")


def test_a_table_of_the_first_round_gets_the_samples_of_all(tmp_path):
    legal, sampled = torch.ones(3, 2, dtype=torch.bool), torch.tensor([[1.0, 2.0]], dtype=torch.float64)

    def added(ranks: Ranks) -> Tensor:
        table = OpeningTable(legal, "argmax")
        for iteration in (1, 2):
            table.add("sums", torch.tensor([ranks.rank]), sampled, iteration, ranks)
        return table.sums

    for sums in found_on_ranks(tmp_path, added):
        assert sums.tolist() == [[3.0, 6.0], [3.0, 6.0], [0.0, 0.0]]


@pytest.mark.parametrize(("name", "memory"), [("leduc", "reservoir"), ("leduc", "window"), ("small_fhp", "reservoir")])
def test_networks_are_equal_on_all_ranks_after_each_fit(name, memory, tmp_path):
    game = load(name) if name == "leduc" else game_of(name)
    given: dict[str, Any] = {} if name == "leduc" else {"strategies": "asked", "regret_unit": 100.0}
    algorithm = small_config(traversals=1501, value_capacity=301, strategy_capacity=300, memory=memory, **given)
    network = NETWORK if name == "small_fhp" else NetworkConfig("sd_cfr", 16)

    def trained(ranks: Ranks) -> dict[str, Any]:
        model = algorithm.build_rank(game, config_of(algorithm, network), ranks)
        assert isinstance(model, DeepCFR)
        after, fits = [], model._fit

        def noted(which: str, player: int, last_step: Any = None) -> float:
            loss = fits(which, player, last_step)
            after.append((model.learner(which, player).optimizer.flat.detach().clone(), loss))
            return loss

        model._fit = noted  # type: ignore[method-assign]
        collect = model.engine.external_sampling
        own: list[tuple[int, int]] = []

        def counted(policy: Any, player: int, deals: int, *rest: Any) -> Any:
            traversals = collect(policy, player, deals, *rest)
            own.append((deals, traversals.nodes_touched))
            return traversals

        model.engine.external_sampling = counted  # type: ignore[method-assign,assignment]
        advanced(model, 4)
        memories = [m.state_dict() for m in model.value_memories]
        return {
            "after": after, "own": own, "nodes": model.nodes_touched, "metrics": model.metrics, "memories": memories,
            "strategies": model.strategies.progress(), "rows": model.algorithm.value.batch_size,
        }  # fmt: skip

    one, other = found_on_ranks(tmp_path, trained)
    assert len(one["after"]) == 12
    for (parameters, loss), (same, its_loss) in zip(one["after"], other["after"], strict=True):
        assert torch.equal(parameters, same)
        assert loss == its_loss
    assert_equal(one["strategies"], other["strategies"])
    assert [deals for deals, _ in one["own"]] == [751] * 8
    assert [deals for deals, _ in other["own"]] == [750] * 8
    assert one["nodes"] == other["nodes"] == sum(nodes for _, nodes in (*one["own"], *other["own"]))
    assert [len(memory["infoset"]) for memory in one["memories"]] == [151, 151], "full, with its share"
    assert [len(memory["infoset"]) for memory in other["memories"]] == [150, 150]
    assert one["metrics"]["memory/value"] == 602
    assert not torch.equal(one["memories"][0]["infoset"][:150], other["memories"][0]["infoset"])
    assert one["rows"] == 32


def assert_equal(one: Any, other: Any) -> None:
    """Plain Python with tensors in it is the same to the bit."""
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for part, its_part in zip(one, other, strict=True):
            assert_equal(part, its_part)
    else:
        assert one == other


# -- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory, _empty_database):
    """A run of two processes that was never stopped, started as a command starts it."""
    output = tmp_path_factory.mktemp("straight")
    shutil.copy(_empty_database, output / "mlflow.db")
    assert executed(*TWO, f"output_dir={output}") == records.FINISHED, records.read(only_folder(output)).message
    return output


def on_forked_ranks(*overrides: str) -> list[int]:
    """The same with forked processes, of which SIGUSR2 asks the first one to stop."""
    run = planned(*overrides)

    def part(rank: int) -> None:
        if rank:
            follow(run.config, rank)
        else:
            with suppress(KeyboardInterrupt), stopped_by_signals(), asked_by(signal.SIGUSR2):
                execute_here(run.configs, run.labels)

    return on_ranks(part)


@pytest.mark.exhaustive
def test_a_run_of_two_processes_is_one_run(straight):
    client, everything = tracked(straight)
    assert len(everything) == 3
    data = results(straight, TWO)
    assert data[data.metric == "exploitability"].groupby("readout").step.apply(list).to_dict() == {
        "deep_cfr": [5, 10], "sd_cfr": [5, 10]
    }  # fmt: skip
    (training,) = (run for run in everything if run.data.params["readout"] == "training")
    assert training.data.params["trainer.devices"] == "2"
    assert [m.step for m in client.get_metric_history(training.info.run_id, "loss/value")] == list(range(1, 11))
    assert not [*only_folder(straight).glob("*.ckpt"), *only_folder(straight).glob("*.part")]


@pytest.mark.exhaustive
def test_killed_and_repeated_equals_never_stopped(straight, tmp_path, monkeypatch):
    overrides = (*TWO, f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    save, calls = Checkpoints._save_part, list[int]()

    def killed(self: Checkpoints, trainer: Any) -> None:
        save(self, trainer)
        calls.append(trainer.current_epoch)
        if trainer.global_rank and len(calls) == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "_save_part", killed)
        assert on_forked_ranks(*overrides)[1] == -signal.SIGKILL
    folder = only_folder(tmp_path)
    assert checkpoints.newest(folder) == 6, "the seventh has parts, but no checkpoint"
    # What was left of the seventh is removed, and a checkpoint whose part is damaged is not gone on from.
    part = folder / torch.load(folder / "last.ckpt", weights_only=True)["parts"][1]
    part.write_bytes(part.read_bytes()[:-100])
    assert on_forked_ranks(*overrides) == [0, 0]
    assert records.read(folder).state == records.FINISHED, records.read(folder).message
    pd.testing.assert_frame_equal(results(tmp_path, TWO), results(straight, TWO))


@pytest.mark.slow
def test_asked_to_stop_all_finish_the_iteration_and_leave_a_checkpoint(tmp_path, monkeypatch):
    overrides = (*TWO, f"output_dir={tmp_path}", "checkpoint_every_seconds=600")
    advance = DeepCFR.advance

    def asked(self: DeepCFR) -> dict[str, float]:
        if self.iteration == 4 and not self.ranks.rank:
            os.kill(os.getpid(), signal.SIGUSR2)
        return advance(self)

    with monkeypatch.context() as patched:
        patched.setattr(DeepCFR, "advance", asked)
        assert on_forked_ranks(*overrides) == [0, 0]
    folder = only_folder(tmp_path)
    assert checkpoints.newest(folder) == 4
    assert records.read(folder).state == records.INTERRUPTED
    assert not checkpoints.problem(folder / "last.ckpt", [folder.name])


@pytest.fixture
def strategy():
    """Of the first process, with one other that does nothing."""
    strategy = Processes()
    launcher = _SubprocessScriptLauncher(LightningEnvironment(), 2, 1)
    strategy._launcher = launcher
    with subprocess.Popen(["sleep", "60"]) as other:
        launcher.procs = [other]
        yield strategy
        other.kill()


def failing(strategy: Processes, error: BaseException) -> None:
    """What Lightning does where an error comes up."""
    with strategy.losses_told():
        strategy.on_exception(error)
        raise error


def test_a_process_that_was_killed_is_told_instead_of_what_came_of_it(strategy):
    strategy.launcher.procs[0].kill()
    with pytest.raises(ReproError, match=r"rank 1: its process was killed \(signal 9; perhaps out of memory\)"):
        failing(strategy, RuntimeError("Connection closed by peer"))


@pytest.mark.parametrize("error", [RuntimeError("of the first one's own"), KeyboardInterrupt()])
def test_others_end_with_the_first_process_which_lightning_does_not_kill_for_it(strategy, error):
    (other,) = strategy.launcher.procs
    with pytest.raises(type(error)):
        failing(strategy, error)
    assert other.wait() == -signal.SIGKILL
    assert not strategy.launcher.procs


# -- configuration ---------------------------------------------------------------------------------------------------


def test_two_processes_are_another_training_and_one_is_what_it_was():
    (default,), (one,), (two,) = (
        configs(*SMALL, *more, multirun=False) for more in ((), ("trainer.devices=1",), ("trainer.devices=2",))
    )
    assert training_key(default) == training_key(one) == "646998a73482"
    assert training_key(two) != training_key(one)
    assert training_key(from_plain(training_config(two))) == training_key(two)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["trainer.devices=0"], "trainer.devices is 0; it must be a whole number from 1 to 1024"),
        (["trainer.devices=auto"], "trainer.devices is 'auto'; it must be a whole number from 1 to 1024"),
        (["algorithm=d2cfr"], "trainer.devices is 2, but the algorithm d2cfr is trained by one process; leave it out."),
        (["algorithm=cfr"], "the algorithm cfr is trained by one process"),
        (["game=fhp", "algorithm=sd_cfr", "seeds=[0,1]"], "trainer.devices is 2 and seeds [0, 1]; several processes"),
        (["algorithm.traversals=1"], "algorithm.traversals is 1 and trainer.devices 2; each process needs 1 at least."),
        (["algorithm.value.batch_size=33"], "algorithm.value.batch_size is 33 and trainer.devices 2; each process"),
        (["+trainer.strategy=ddp"], "trainer.strategy is 'ddp'; with several processes trainer.devices says that"),
        (["+trainer.num_nodes=4"], "trainer.num_nodes is 4; all processes of a run are on one machine"),
        (
            ["+trainer.callbacks.stop={_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: loss/value}"],
            "trainer.devices is 2 and trainer.callbacks stop; several processes take no callbacks",
        ),
    ],
)
def test_what_several_processes_cannot_do_is_refused_before_any_work(overrides, sentence):
    assert sentence in refused("trainer.devices=2", *overrides)
