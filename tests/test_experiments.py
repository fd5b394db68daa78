"""What targets ask for: their sweeps, the names of their runs, the settings and departures in conf/, the trainings that
they share; and what published commands ask for today. All are planned in this file, since a process plans each once."""

from __future__ import annotations

import importlib
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from paper_figures.sweeps import Sweep, against
from repro.config.composed import CONF
from repro.config.jobs import is_about_launching
from repro.config.keys import hyperparameters, training_config, training_key
from repro.figures.agreement import other_settings
from repro.figures.published import command_of, published
from repro.figures.targets import Options, plan_target
from repro.plans.naming import curve_name, name_of, titled_together
from repro.plans.planned import Run
from repro.plans.planning import plan
from tests.helpers.cases import usually_first
from tests.helpers.commands import configs

TARGETS = sorted(path.stem for path in (CONF.parent / "paper_figures").glob("*.md"))
SCALES = ("smoke", "laptop", "paper")
BETWEEN = dict.fromkeys(("figure4", "fhp_limit"), ("gpu", "night")) | dict.fromkeys(
    ("figure2", "figure5", "figure13", "devn_turns", "table1", "table2"), ("night",)
)
"""Scales between laptop and paper of targets that have some."""
PLANNED = [(target, scale) for target in TARGETS for scale in (*SCALES, *BETWEEN.get(target, ()))]
OF_MANY_SWEEPS = ("devn_settings", "d2cfr_baselines")
FILES = sorted(CONF.rglob("*.yaml"))


def sweeps(target: str) -> Sequence[Sweep]:
    return tuple(importlib.import_module(f"paper_figures.{target}").SWEEPS)


@cache
def planned(*arguments: str) -> Sequence[Run]:
    return plan(arguments, multirun=True).runs


def of_one_seed(words: Sequence[str]) -> tuple[Sequence[Run], list[int]]:
    """What a command asks for with the first of its seeds, and all of these: runs of others differ in nothing else.

    Without what is no setting, target and launcher, a sweep and its published command are planned as one.
    """
    (seed,) = (word for word in words if word.startswith("seed="))
    said = OverridesParser.create().parse_override(seed)
    values = said.sweep_string_iterator() if said.is_sweep_override() else [str(said.value())]
    seeds = list(map(int, values))
    others = ("target=", "hydra/launcher=")
    return planned(*(f"seed={seeds[0]}" if w == seed else w for w in words if not w.startswith(others))), seeds


def first_seeds(sweep: Sweep, scale: str) -> Sequence[Run]:
    return of_one_seed(sweep.arguments(scale))[0]


def sweeps_at(target: str, scale: str) -> list[Sweep]:
    return [sweep for sweep in sweeps(target) if not sweep.only or scale in sweep.only]


def keys(target: str, scale: str, name: str = "") -> set[str]:
    (sweep,) = (s for s in sweeps(target) if s.name == name)
    return {run.key for run in first_seeds(sweep, scale)}


# -- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_at_a_scale():
    sweep = Sweep("some", "algorithm.iterations=9 seed=range(3) +a.b='[1, 2]'", {"smoke": "seed=0 a.b=3 a.c=4"})
    assert sweep.arguments("paper") == ["algorithm.iterations=9", "seed=range(3)", "+a.b=[1, 2]", "scale=paper"]
    assert sweep.arguments("smoke") == ["algorithm.iterations=9", "seed=0", "a.b=3", "scale=smoke", "a.c=4"]


def test_an_opponent_is_the_run_that_its_overrides_ask_for():
    same = "algorithm=sd_cfr_and_deep_cfr algorithm.iterations=3"
    theirs = Sweep("", f"{same} seed=0,7")
    ours = Sweep("", f"evaluation=match seed=0,7 {against('them', same, 'sd_cfr')} {against('deep', same, 'deep_cfr')}")
    for run, other in zip(planned(*ours.arguments("night")), planned(*theirs.arguments("night")), strict=True):
        assert run.config.evaluation["match"].opponents == {
            "them": f"{other.key}/sd_cfr",
            "deep": f"{other.key}/deep_cfr",
        }


@pytest.mark.parametrize("target", TARGETS)
def test_sweeps_of_a_target_have_names(target):
    names = [sweep.name for sweep in sweeps(target)]
    assert len(set(names)) == len(names)
    assert names == [""] or all(re.fullmatch("[a-z0-9_]+", name) for name in names)
    assert all(set(sweep.at) <= {scale for of, scale in PLANNED if of == target} for sweep in sweeps(target))


@pytest.mark.parametrize(
    ("target", "scale"),
    [
        pytest.param(of, at, marks=[] if at == "smoke" and of not in OF_MANY_SWEEPS else pytest.mark.exhaustive)
        for of, at in PLANNED
    ],
)
def test_every_target_can_be_planned(target, scale):
    made: set[str] = set()
    for sweep in sweeps_at(target, scale):
        found = first_seeds(sweep, scale)
        assert all(set(run.labels.values()) == {scale} for run in found)
        mine = {run.key for run in found}
        assert len(mine) == len(found), f"{sweep.name} asks for the same training twice"
        # What a run is measured against is made before it, for the same target.
        assert all(run.needs <= made for run in found)
        made |= mine


# -- names -----------------------------------------------------------------------------------------------------------


def named(target: str, scale: str) -> dict[tuple[str, str], set[str]]:
    """A target's settings by MLflow's experiment and the names of their read-outs."""
    runs = titled_together([run for sweep in sweeps_at(target, scale) for run in first_seeds(sweep, scale)])
    settings: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        alike = str({**hyperparameters(run.config), "seed": None})
        for name in run.config.algorithm.readouts:
            whole = run.config.game["name"], curve_name(run.title, run.config, name)
            settings.setdefault(whole, set()).add(alike)
    return settings


def names_of(target: str, scale: str) -> list[str]:
    return [name for _, name in named(target, scale)]


CUT_AT = 10
"""Characters of a name that the UI's list of runs shows at the least."""
BEGIN_ALIKE = {
    "d2cfr_baselines": 9, "d2cfr_choices": 4, "deep_cfr_ablations": 23, "devn_pipelines": 6, "devn_samples": 2,
    "devn_settings": 66, "fhp_fits": 2, "figure10": 24, "figure11": 24, "figure13": 2, "table4": 22, "table5": 24,
    # Of each network with buckets but setting I's two or three read-outs of DEVN, which its name comes before.
    "table6": 54,
}  # fmt: skip
"""How many names of a target begin like another one; of all other targets none does."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_no_two_settings_share_a_name_and_few_names_begin_alike(target):
    settings = named(target, "laptop")
    assert [name for name, found in settings.items() if len(found) > 1] == []
    beginnings = Counter((game, name[:CUT_AT].rstrip()) for game, name in settings)
    assert sum(many for many in beginnings.values() if many > 1) == BEGIN_ALIKE.get(target, 0)


@pytest.mark.exhaustive
def test_names_differ_in_their_first_characters():
    """Legends and lists cut what follows."""
    swept = [50, 100, 150, 200, 300, 500, 800, 1000]
    assert [name.split()[0] for name in names_of("figure9", "laptop")] == list(map(str, swept))
    names = names_of("figure1", "paper")
    assert {"sd_cfr", "deep_cfr", "1000_sd_cfr", "aggregated sd_cfr memory=aggregated"} < set(names)
    assert name_of([], "d2cfr_20", "s1") == "20_d2cfr s1"
    assert not any("figure1" in name for name in names)
    # An experiment is named where nothing else tells its runs apart.
    assert {"openspiel_leduc deep_cfr", "sd_cfr_leduc deep_cfr"} < set(names_of("d2cfr_baselines", "laptop"))
    assert {"dcvn", "devn", "devn_own_step", "exact"} < set(names_of("figure13", "laptop"))
    # Of the names of groups the list shows six characters or fewer.
    assert {"post", "post_greedy", "corrected", "greedy_corrected"} < set(names_of("kuhn", "laptop"))
    # Of yes and no the key says more.
    assert "no muon 0.2 sd_cfr value.muon=null value.focus=0.2" in names_of("fhp_fits", "laptop")


@pytest.mark.parametrize("target", usually_first(["kuhn", "d2cfr_baselines"]))
def test_names_are_told_apart_over_all_sweeps_of_a_target(target):
    """Which is what tests of names take for granted."""
    _, runs = plan_target(target, Options("smoke", Path("outputs"), 1, "cpu", False, seeds=1))
    names = {
        (r.config.game["name"], curve_name(r.title, r.config, name))
        for r in runs
        for name in r.config.algorithm.readouts
    }
    assert names == named(target, "smoke").keys()
    assert not any(target in name for _, name in names)


def test_runs_of_different_algorithms_are_different_curves_though_their_read_outs_have_one_name():
    """D2CFR's baselines: Deep CFR by two experiments, each read as `deep_cfr`."""
    settings = named("d2cfr_baselines", "smoke")
    assert [name for name, found in settings.items() if len(found) > 1] == []
    assert len(settings) > 5


# -- what is published -----------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "result", [result for target in published() for result in target.results], ids=lambda r: f"{r.target}-{r.scale}"
)
def test_the_command_of_every_published_sweep_asks_for_the_runs_that_were_done(result):
    for sweep in result.provenance["sweeps"]:
        words = shlex.split(command_of(sweep))
        assert words[:4] == ["python", "-m", "repro.run", "-m"]
        # With which `test_published_commands_are_understood_as_they_are` plans all that it does.
        assert [word for word in words[4:] if is_about_launching(word)] == ["hydra/launcher=joblib"]
        runs, seeds = of_one_seed(words[4:])
        configs = [config for run in runs for config in run.configs]
        assert len(configs) * len(seeds) == len(sweep["wall_seconds"]), words
        assert sorted(seeds) == sweep["seeds"]
        now, then = training_config(configs[0]), sweep["config"]
        assert [change for change in other_settings(then, now) if " then, " in change] == []
        assert now["algorithm"]["iterations"] == then["algorithm"]["iterations"]
        assert ("command_now" in sweep) == ("+experiment=" in sweep["command"]), "where it is not understood any more"


def test_published_commands_are_understood_as_they_are():
    (kuhn,) = (
        result
        for target in published()
        for result in target.results
        if (target.name, result.scale) == ("kuhn", "paper")
    )
    for sweep in kuhn.provenance["sweeps"]:
        runs = plan(shlex.split(command_of(sweep))[4:], multirun=True).runs
        assert sorted(config.seed for run in runs for config in run.configs) == sorted(sweep["seeds"])
        assert {str(run.labels) for run in runs} == {"{'kuhn': 'paper'}"}


# -- files -----------------------------------------------------------------------------------------------------------


def _experiments(target: str) -> set[str]:
    named = [argument for sweep in sweeps(target) for argument in sweep.arguments("paper")]
    return {argument.removeprefix("experiment=") for argument in named if argument.startswith("experiment=")}


@pytest.mark.parametrize("target", TARGETS)
def test_experiments_say_how_they_depart(target):
    """An experiment without a file at a scale would be made as published, which takes days."""
    for experiment in _experiments(target):
        assert (CONF / "experiment" / f"{experiment}.yaml").is_file()
        for scale in ("smoke", "laptop"):
            assert (CONF / "departures" / scale / f"{experiment}.yaml").is_file()


def test_every_experiment_is_used():
    used = set().union(*map(_experiments, TARGETS))
    assert {path.stem for path in (CONF / "experiment").iterdir()} == used


def test_sd_cfr_against_d2cfr_is_figure_1s_training_at_laptop_scale():
    """Published there, and done once for both; at `paper` it has D2CFR's length."""
    for scale, same in (("laptop", True), ("smoke", True), ("paper", False)):
        one, other = (configs(f"experiment={name}", f"scale={scale}")[0] for name in ("figure1", "sd_cfr_leduc"))
        assert (training_key(one) == training_key(other)) == same
    assert other.algorithm.iterations == 1000


def test_one_learner_has_what_the_code_divides_among_eleven():
    (run,) = plan(["experiment=figure3"], multirun=False).runs
    algorithm = run.config.algorithm
    divided = (algorithm.traversals, algorithm.value.batch_size, algorithm.average.batch_size)
    assert divided == (11 * 800, 11 * 256, 11 * 512)
    assert (algorithm.value_capacity, algorithm.strategy_capacity) == (4_000_000, 4_000_000)
    assert run.config.trainer["devices"] == 1, "several would divide them"


def test_departures_are_of_an_experiment_at_a_scale():
    for path in (CONF / "departures").rglob("*.yaml"):
        assert (CONF / "experiment" / path.name).is_file()
        assert (CONF / "scale" / f"{path.parent.name}.yaml").is_file()


def _body(path: Path) -> str:
    lines = [re.sub("(^| )#.*", "", line).rstrip() for line in path.read_text().splitlines()]
    return "\n".join(filter(None, lines))


def test_no_two_files_say_the_same():
    """Those of one scale, or of one experiment: that two others shorten alike is chance."""
    for first, second in combinations(FILES, 2):
        if first.parent != second.parent and first.name != second.name:
            continue
        assert _body(first) != _body(second), f"{first} and {second}"


@pytest.mark.parametrize("path", sorted((CONF / "experiment").iterdir()), ids=lambda path: path.stem)
def test_experiments_leave_seeds_scales_and_targets_to_others(path):
    assert not re.search(r"^(seed|seeds|scale|target|hydra):", path.read_text(), re.MULTILINE)


# -- what is shared --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", usually_first(SCALES))
def test_targets_share_trainings(scale):
    assert keys("table1", scale) == keys("figure2", scale)
    d2cfr = keys("figure6", scale, "d2cfr")
    assert d2cfr == keys("figure7", scale, "d2cfr") == keys("figure8", scale, "d2cfr")
    assert d2cfr == keys("table3", scale, "d2cfr_leduc")
    assert keys("figure6", scale, "deep_cfr") == keys("table3", scale, "baselines_leduc")
    fhp = [keys("figure4", scale, "deep_cfr"), keys("figure5", scale, "traversals"), keys("figure5", scale, "steps")]
    assert fhp[0] & fhp[1]
    assert fhp[1] & fhp[2]
    for target in ("figure10", "figure11", "table6"):
        assert keys("table5", scale, "setting_ii") == keys(target, scale, "setting_ii")
        assert keys("table5", scale, "data_1") == keys(target, scale, "data_1") == keys("devn_samples", scale, "data_1")
    assert keys("devn_samples", scale, "samples_all") <= keys("table6", scale, "setting_i")


@pytest.mark.parametrize(
    "name", ["divergence", "policy_steps", "state_loss", "traversals", "value_start", "value_steps"]
)
def test_choices_share_what_was_chosen(name):
    assert keys("figure6", "paper", "d2cfr") < keys("d2cfr_choices", "paper", name)
    assert keys("d2cfr_choices", "laptop", "traversals") & keys("d2cfr_choices", "laptop", name)
    assert keys("figure6", "paper", "d2cfr") < keys("figure9", "paper")


def test_a_key_is_of_what_is_trained():
    (plain,) = planned("experiment=figure1", "scale=smoke")
    same = ("target=mine", "evaluation=[]", "+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}")
    for override in same:
        assert planned("experiment=figure1", "scale=smoke", override)[0].key == plain.key
    for override in ("seed=1", "threads=2", "algorithm.snapshot_every=4", "network.width=8", "game.ante=2.0"):
        assert planned("experiment=figure1", "scale=smoke", override)[0].key != plain.key
