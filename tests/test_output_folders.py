"""Output folders of any name: what runs leave is in them, and `make` hands their names on as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro.config.jobs import quoted
from repro.plans.planning import plan
from repro.running.executing import execute
from repro.tracking import record as records
from repro.tracking.store import default_uri, experiment_id, open_store
from tests.helpers.cases import usually_first
from tests.helpers.commands import SMALL

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("a b", "a?b", "a#b", "a%20b", "a'b", 'a"b', "a=b", "a,b", "a$b", "a&b;c", "a@b:c", "ÿé", "a[b]*", "100%")


@pytest.mark.exhaustive
@pytest.mark.makes_a_database
@pytest.mark.parametrize("name", NAMES)
def test_the_store_and_its_files_are_in_the_folder_whatever_its_name(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    client = open_store(default_uri(folder))
    run = client.create_run(experiment_id(client, "leduc", folder / "artifacts"))
    (tmp_path / "file").write_text("x")
    client.log_artifact(run.info.run_id, str(tmp_path / "file"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, "file"})
    assert (folder / "mlflow.db").is_file()
    assert [path.read_text() for path in folder.glob("artifacts/**/file")] == ["x"]
    again = open_store(default_uri(folder))
    assert again.get_run(run.info.run_id).info.run_id == run.info.run_id


def test_the_name_of_an_ordinary_folder_is_as_it_was(tmp_path):
    assert default_uri(tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize("name", [*NAMES, "a\\b", "a\\", "a\\'b", "${a}", "a\\${b}", "a\\\\${seed}'"])
def test_any_text_can_be_the_value_of_an_override(name):
    (run,) = plan([*SMALL, f"output_dir={quoted(name)}"], multirun=False).runs
    assert run.config.output_dir == name


@pytest.mark.slow
@pytest.mark.makes_a_database
@pytest.mark.parametrize("name", usually_first(["a b", "a?b#c%20d", "a'b\"c", "a=b,c$d"]))
def test_a_run_leaves_everything_in_its_folder(tmp_path, name):
    folder = tmp_path / name
    (run,) = plan([*SMALL, "algorithm.iterations=2", f"output_dir={quoted(str(folder))}"], multirun=False).runs
    assert run.config.output_dir == str(folder)
    assert execute(run.configs, run.labels) == records.FINISHED
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (folder / "mlflow.db").is_file()
    assert list(folder.glob("artifacts/**/strategy.csv"))


@pytest.fixture
def made(tmp_path):
    """`make` with a program instead of Python that writes down what it is called with."""
    environment = tmp_path / "venv"
    environment.mkdir()
    for stamp in ("runtime", "test"):
        (environment / stamp).touch()
        os.utime(environment / stamp, (2**32, 2**32))
    said = tmp_path / "said.json"
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open({str(said)!r}, 'w'))\n")
    program.chmod(0o755)

    def make(*arguments: str) -> list[str]:
        given = [*arguments, f"VENV={environment}", f"RUN={program}", f"PYTHON={sys.executable}"]
        subprocess.run(["make", "-C", str(ROOT), *given], check=True, capture_output=True)
        return [str(word) for word in json.loads(said.read_text())]

    return make


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a$b", "a#b", "a%20b?", "a;b", "é"])
@pytest.mark.parametrize("target", ["figure1", "publish TARGET=figure1", "bench"])
def test_make_takes_any_output(made, target, name):
    words = made(*target.split(), f"OUTPUT={name}")
    expected = f"{name}/bench.json" if target == "bench" else name
    assert words[words.index("--output") + 1] == expected


@pytest.mark.parametrize(("slip", "meant"), [("SEED=1", "SEEDS"), ("scale=smoke", "SCALE"), ("JOB=1", "JOBS")])
def test_make_suggests_the_nearest_variable_and_does_nothing(slip, meant):
    asked = ["make", "-n", "-C", str(ROOT), "figure1", slip]
    wrong = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert wrong.returncode == 2
    assert f"make knows no variable {slip.partition('=')[0]} (did you mean {meant}?)." in wrong.stderr
    assert "repro.figure" not in wrong.stdout


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("figure1 ITERATIONS=10", "make figure1 does nothing with ITERATIONS; it takes CLUSTER DEVICE FORCE JOBS ON"),
        ("test SCALE=smoke", "make test does nothing with SCALE; it takes JOBS."),
        ("list TARGET=figure1", "make list does nothing with TARGET; it takes no variable."),
        ("bench OUTPUT=", "OUTPUT is empty; it must be the name of a folder."),
    ],
)
def test_make_refuses_a_variable_that_it_would_not_use(asked, sentence):
    wrong = subprocess.run(["make", "-n", "-C", str(ROOT), *asked.split()], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert sentence in wrong.stderr


def test_make_hands_on_variables_of_the_environment(made):
    assert "smoke" in made("figure1", "SCALE=smoke", "MKL_CBWR=COMPATIBLE", "PYTHONPATH=.", "MLFLOW_TRACKING_URI=x")


def test_make_suggests_the_nearest_target():
    wrong = subprocess.run(
        ["make", "-C", str(ROOT), "figur1", f"PYTHON={sys.executable}"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode != 0
    assert "error: make knows no target 'figur1' (did you mean figure1?)." in wrong.stderr
