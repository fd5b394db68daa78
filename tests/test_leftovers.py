"""What killed processes leave is cleaned when the next command starts; what is alive is left alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from pathlib import Path

import pytest

from repro.common import durable
from repro.jobs.launching import Command
from repro.stored import leftovers
from repro.stored.output import prepare_output
from repro.tracking import record as records
from repro.tracking.store import default_uri, open_store
from tests.helpers.commands import SMALL, executed, killed_after, only_folder, planned, tracked


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run that was killed after 7 iterations."""
    output = tmp_path_factory.mktemp("killed")
    killed_after(7, *SMALL, f"output_dir={output}")
    return output


@pytest.fixture
def output(killed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed, tmp_path / "outputs")


def start(output: Path) -> None:
    """What every command that does runs begins with."""
    Command(prepare_output(str(output)), None, None)


def states(output: Path) -> tuple[str, set[str]]:
    """Of the only run: its record's, and those in MLflow."""
    return records.read(only_folder(output)).state, {run.info.status for run in tracked(output)[1]}


@pytest.mark.exhaustive
def test_a_run_whose_process_is_gone_is_interrupted(output):
    assert states(output) == (records.RUNNING, {"RUNNING"})
    start(output)
    assert states(output) == (records.INTERRUPTED, {"KILLED"})
    assert records.read(only_folder(output)).message == "repeat the command to continue"
    assert (only_folder(output) / "last.ckpt").exists(), "it can be continued"
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    assert states(output) == (records.FINISHED, {"FINISHED"})


def test_a_run_that_is_alive_is_left_alone(output):
    unfinished = only_folder(output) / "run.json.writing-1"
    unfinished.touch()
    with (only_folder(output) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start(output)
        assert states(output) == (records.RUNNING, {"RUNNING"})
        assert unfinished.exists()


def test_a_run_in_mlflow_that_no_record_knows_is_closed(output):
    """Its process was killed before it could note the id."""
    folder = only_folder(output)
    record = records.read(folder)
    record.mlflow, record.state = {}, records.INTERRUPTED
    records.write(folder, record)
    start(output)
    assert states(output)[1] == {"KILLED"}


def test_runs_of_others_in_a_store_that_is_shared_are_left_alone(output):
    folder = only_folder(output)
    record = records.read(folder)
    record.mlflow = dict(list(record.mlflow.items())[:1])
    records.write(folder, record)
    Command(prepare_output(str(output)), f"sqlite:///{output / 'mlflow.db'}", None)
    assert sorted(run.info.status for run in tracked(output)[1]) == ["KILLED", "RUNNING", "RUNNING"]


def test_files_that_were_being_written_go(output):
    folder = only_folder(output)
    names = ("run.json.writing-1", "evaluations/x.json.writing-22", "writing.ckpt", "snapshots/0000005.pt.writing-333")
    for name in names:
        (folder / name).touch()
    before = {path for path in folder.rglob("*") if path.is_file()}
    prepare_output(str(output))
    gone = before - {path for path in folder.rglob("*") if path.is_file()}
    assert {str(path.relative_to(folder)) for path in gone} == set(names)
    for name in names:
        (folder / name).touch()
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    assert not [name for name in names if (folder / name).exists()], "the run itself does so, too"


def test_trying_to_write_leaves_nothing(tmp_path):
    prepare_output(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} <= {"commands", "commands.lock"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["the next command", "the run itself"])
def test_checkpoints_of_a_finished_run_go(output, moment):
    """It was killed between saying that it is finished and cleaning."""
    folder = only_folder(output)
    checkpoint = (folder / "last.ckpt").read_bytes()
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    for name in ("last.ckpt", "previous.ckpt", "unusable-1.ckpt"):
        (folder / name).write_bytes(checkpoint)
    together = folder.with_name(f"{folder.name}-with-1")
    together.mkdir()
    (together / "last.ckpt").write_bytes(checkpoint)
    if moment == "the next command":
        prepare_output(str(output))
        assert not list(output.rglob("*.ckpt"))
    else:
        assert executed(*SMALL, f"output_dir={output}") == records.SKIPPED
        assert not list(folder.glob("*.ckpt"))


def test_checkpoints_stay_as_long_as_one_of_their_trainings_needs_them(output):
    folder = only_folder(output)
    together = folder.with_name("000000000000-with-1")
    together.mkdir()
    shutil.copy(folder / "last.ckpt", together / "unusable-1.ckpt")
    (together / "unusable-2.ckpt").write_text("nobody knows what this is of")
    prepare_output(str(output))
    assert sorted(path.name for path in output.rglob("*.ckpt")) == [
        "last.ckpt", "previous.ckpt", "unusable-1.ckpt", "unusable-2.ckpt",
    ]  # fmt: skip


def test_folders_of_commands_that_are_gone_go(tmp_path):
    with leftovers.folder_of_a_command(tmp_path, "alive") as alive:
        dead = tmp_path / "commands" / "dead"
        (dead / "jobs").mkdir(parents=True)
        (dead / "lock").touch()
        (dead.with_name("unknown") / "jobs").mkdir(parents=True)
        prepare_output(str(tmp_path))
        assert {path.name for path in alive.parent.iterdir()} == {"alive", "unknown"}, "one without a lock may be alive"
    assert not alive.exists()


def test_a_run_in_mlflow_that_another_command_does_by_now_is_not_closed(output):
    folder = only_folder(output)
    command = Command(output.with_name("other"), None, None)
    command._output, command._client = output, open_store(default_uri(output))
    record = records.read(folder)
    record.invocation, record.state = command.invocation, records.FAILED
    records.write(folder, record)
    run = planned(*SMALL, f"output_dir={output}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command._close([run])
        assert states(output)[1] == {"RUNNING"}
    command._close([run])
    assert states(output)[1] == {"KILLED"}


def test_files_of_a_run_that_has_failed_go(output):
    folder = only_folder(output)
    record = records.read(folder)
    record.state = records.FAILED
    records.write(folder, record)
    for name in ("writing.ckpt", "run.json.writing-1"):
        (folder / name).touch()
    prepare_output(str(output))
    assert not list(folder.glob("*writing*"))
    assert records.read(folder).state == records.FAILED


def test_files_of_figures_and_subgames_go_when_nobody_writes_them(tmp_path):
    figures, subgames = tmp_path / "figures" / "figure1", tmp_path / "subgames" / "key"
    kept = {"data.csv", "data.csv.writing-mine"}
    for folder in (figures, subgames):
        folder.mkdir(parents=True)
        for name in (*kept, "data.csv.writing-elsewhere-7", f"claims.json.writing-{os.getpid()}"):
            (folder / name).touch()
    prepare_output(str(tmp_path))
    assert {path.name for path in figures.iterdir()} == {path.name for path in subgames.iterdir()} == kept


def test_what_a_killed_writer_left_beside_a_figure_goes_with_the_next_command(tmp_path):
    figure = tmp_path / "figures" / "figure1" / "figure1.pdf"
    figure.parent.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        with durable.replacing(figure) as file:
            file.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(figure.parent.iterdir())) == 1
    with durable.replacing(figure) as file:  # Of one that is alive nothing is taken.
        file.write(b"whole")
        prepare_output(str(tmp_path))
    assert [path.name for path in figure.parent.iterdir()] == [figure.name]


def test_a_process_that_has_ended_is_not_alive_though_nobody_has_asked_how():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not leftovers.is_alive(child)
    os.waitpid(child, 0)
    assert not leftovers.is_alive(child)
    assert leftovers.is_alive(os.getpid())
