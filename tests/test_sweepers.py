"""Sweeps over globs, and sweepers of Hydra's that go by what runs return."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from repro.stored.results import headline_value
from tests.helpers.commands import SMALL, command, configs, executed, planned


def test_a_glob_sweeps_over_choices_and_not_over_what_they_are_made_of():
    assert [c.algorithm.name for c in configs("algorithm=glob(*mccfr*)")] == ["es_mccfr", "os_mccfr"]
    assert {c.game["name"] for c in configs("game=glob([ku*,led*])", "algorithm=cfr")} == {"kuhn", "leduc"}


PLUGIN = """
import json, os
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class TwoSeeds(Sweeper):
    def setup(self, *, hydra_context, task_function, config):
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments):
        returned = self.launcher.launch([[*arguments, f"seed={s}"] for s in (0, 1)], initial_job_idx=0)
        with open(os.environ["RETURNED"], "w") as file:
            json.dump([job.return_value for job in returned], file)

ConfigStore.instance().store(
    group="hydra/sweeper", name="two_seeds", node={"_target_": "hydra_plugins.two_seeds.TwoSeeds"})
"""


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_sweeper_of_hydras_is_told_what_a_run_is_worth(tmp_path):
    (tmp_path / "hydra_plugins").mkdir()
    (tmp_path / "hydra_plugins" / "two_seeds.py").write_text(PLUGIN)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "RETURNED": str(tmp_path / "returned.json"), "PYTHONPATH": os.pathsep.join(paths)}
    words = command("-m", *SMALL, f"output_dir={tmp_path}", "hydra/sweeper=two_seeds")
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    returned = json.loads((tmp_path / "returned.json").read_text())
    expected = [headline_value(planned(*SMALL, f"output_dir={tmp_path}", f"seed={seed}").config) for seed in (0, 1)]
    assert returned == expected
    assert all(isinstance(value, float) for value in returned)
    assert returned[0] != returned[1]
    stop = "+trainer.callbacks.stop={_target_: pytorch_lightning.callbacks.Timer, duration: {seconds: 0}}"
    words = [*words, "algorithm.iterations=7", stop]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: the run ")


@pytest.mark.exhaustive
def test_what_is_not_measured_has_no_worth(tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}", "algorithm.iterations=5", "evaluation=[]")
    assert executed(*overrides) == "finished"
    assert headline_value(planned(*overrides).config) is None


@pytest.mark.exhaustive
@pytest.mark.parametrize(("choice", "told"), [("optuna", "; there are basic."), ("basci", " (did you mean basic?)")])
def test_a_sweeper_that_is_not_installed_is_told_in_one_sentence(tmp_path, choice, told):
    words = command("-m", *SMALL, f"output_dir={tmp_path}", f"hydra/sweeper={choice}")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"Could not find 'hydra/sweeper/{choice}'{told}" in done.stderr
    assert "Traceback" not in done.stderr
