"""What cannot be meant is refused before any work, in one sentence that says what may have been."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from repro import evaluate, run
from repro.common.errors import ReproError
from repro.config import memory
from repro.jobs.needs import check_sizes
from repro.plans.planning import measured_otherwise, plan
from tests.helpers.commands import SMALL, configs

KEY = "0123456789ab"
STOP = "+trainer.callbacks.stop={_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: sd_cfr/exploitability"


def refused(*overrides: str, multirun: bool = False) -> str:
    with pytest.raises(ReproError) as caught:
        check_sizes(plan(overrides, multirun).runs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["+forse=true"], "forse is no key of this configuration (did you mean force?)."),
        (["forse=true"], "forse is no key of this configuration (did you mean force?)."),
        (["++network.widht=3"], "network.widht is no key of this configuration (did you mean network.width?)."),
        (["traversals=5"], "traversals is no key of this configuration (did you mean algorithm.traversals?)."),
        (["++algorithm.value.stpes=5"], "(did you mean algorithm.value.steps?)."),
        (
            ["+algorithm.opponent.x=KEY"],
            "algorithm.opponent is no key of this configuration (did you mean evaluation.m",
        ),
        (["algorithm=nfsp", "+algorithm.opponents.x=KEY"], "(did you mean evaluation.match.opponents?)."),
        (["evaluation=match", "+evaluation.match.oponents.x=KEY"], "(did you mean evaluation.match.opponents?)."),
        (
            ["+evaluation.matsh.opponents.x=KEY"],
            "there is no evaluation matsh (did you mean match?); there are costs, ",
        ),
        (["+evaluation.match={}"], "evaluation match is not selected; add evaluation=[match]."),
        (["+evaluation@evaluation.second=match"], "there is no evaluation second; there are costs, "),
        (
            ["evaluation.exploitability=5"],
            "evaluation.exploitability is 5; it must be one of those in conf/evaluation.",
        ),
        (["+netwrk=fc"], "netwrk is no key of this configuration (did you mean network?)."),
        (["+xyz=1"], "xyz is no key of this configuration (the keys there are game, algorithm, network, seed, "),
        (["+game.rank=4"], "game leduc has no parameter 'rank' (did you mean ranks?); its parameters are ranks, "),
        (["algorithm=schema_deep_cfr"], "Could not find 'algorithm/schema_deep_cfr' (did you mean "),
        (["algorithm=base/mccfr"], "Could not find 'algorithm/base/mccfr' (did you mean os_mccfr?); there are cfr,"),
        (["network=schema"], "Could not find 'network/schema'; there are brown, deep_cfr"),
        (["evaluation=[costs,schema_match]"], "Could not find 'evaluation/schema_match'; there are costs,"),
        (["game=river_subgames", "algorithm=dcvn", "+game.leastpot=4"], "'leastpot' (did you mean least_pot?)"),
        (["+algorithm.readouts.x={kinds: ensemble}"], "with the keys kind and capacity (did you mean kind?)."),
        (["algorithm.readouts.x={kind: ensemble}"], "algorithm.readouts.x is not there; write +algorithm.readouts.x="),
        (["algorithm.average='${seed}'"], "algorithm.average is 0; it must have the keys of a RegressionConfig."),
        (["seed='${sede}'"], "seed: Interpolation key 'sede' not found"),
        (["seed=abc"], "seed is 'abc'; it must be a whole number."),
        (["algorithm.value.learning_rate=x"], "algorithm.value.learning_rate is 'x'; it must be a number."),
        (["force=5x"], "force is '5x'; it must be true or false."),
        (["seed=null"], "seed is null; it must have a value."),
        (["algorithm.module=nonsense"], "algorithm.module is 'nonsense'; it must be a file that can be imported ("),
        (["algorithm.readouts.sd_cfr.kind=5"], "algorithm.readouts.sd_cfr.kind is 5; it must be the name of a kind"),
        (["departures=foo"], "departures=foo: departures follow from scale and experiment, leave them out."),
        (["+hydra/foo=bar"], "hydra/foo is nothing that Hydra knows"),
        (["hydra.searchpath=[file:///]"], "hydra.searchpath is for Hydra alone; give a folder of configurations with"),
        (["+hydra.launcher.x=1"], "hydra.launcher.x is no key of this configuration"),
        (["hydra.launcher.n_job=1", "hydra/launcher=joblib"], "(did you mean hydra.launcher.n_jobs?)."),
        (
            ["hydra.launcher.n_jobs=0", "hydra/launcher=joblib"],
            "n_jobs is 0; it must be from 1 to 1024, or -1 (all cor",
        ),
    ],
)
def test_a_misspelt_key_is_refused_whatever_it_is_typed_with(overrides, sentence):
    assert sentence in refused(*overrides)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("algorithm=sd_cfrr", "Could not find 'algorithm/sd_cfrr' (did you mean sd_cfr?); there are cfr, cfr_plus, "),
        ("scale=laptopp", "Could not find 'scale/laptopp' (did you mean laptop?)"),
        ("experiment=figur1", "Could not find 'experiment/figur1' (did you mean figure1?)"),
        ("experiment=figure6", "Could not find 'experiment/figure6'; figure6 is what `make figure6` makes; there are"),
        ("evaluation=[exploitabilty]", "Could not find 'evaluation/exploitabilty' (did you mean exploitability?)"),
        (
            "hydra/launcher=jobli",
            "Could not find 'hydra/launcher/jobli' (did you mean joblib?); there are basic, joblib",
        ),
        ("algorithm.memory=resevoir", "one of reservoir, window, aggregated (did you mean reservoir?)."),
        (
            "+algorithm.readouts.x={kind: ensembel}",
            "must be one of ensemble, as_collected, average_network (did you mean ensemble?).",
        ),
        ("game.name=leducc", "game 'leducc' is unknown (did you mean leduc?)"),
        ("game.name='${x}'", "bad configuration: game.name: Interpolation key 'x' not found"),
    ],
)
def test_a_misspelt_choice_is_refused_with_the_nearest_one(override, sentence):
    message = refused(override)
    assert sentence in message
    assert "schema" not in message


def test_nothing_is_made_where_a_key_is_unknown(tmp_path, capsys):
    assert run.main([*SMALL, "+forse=true", f"output_dir={tmp_path / 'never'}"]) == 2
    assert capsys.readouterr().err == "error: forse is no key of this configuration (did you mean force?).\n"
    assert not (tmp_path / "never").exists()


def test_what_may_be_added_still_may(tmp_path):
    (config,) = configs(
        *SMALL, "evaluation=[exploitability,match]", f"+evaluation.match.opponents.five={KEY}/sd_cfr",
        "+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}", f"{STOP}, patience: 3}}",
        "+trainer.detect_anomaly=true", "+trainer.log_every_n_steps=7",
        "+logger.table={_target_: pytorch_lightning.loggers.CSVLogger, save_dir: null}", multirun=False,
    )  # fmt: skip
    assert set(config.algorithm.readouts) == {"sd_cfr", "deep_cfr", "sd_cfr_9"}
    assert config.trainer["detect_anomaly"] is True
    (config,) = configs(*SMALL, "+evaluation@evaluation.second=schema_exploitability", multirun=False)
    assert set(config.evaluation) == {"exploitability", "second"}
    (tmp_path / "game").mkdir()
    (tmp_path / "game" / "coloured.yaml").write_text("name: leduc\nranks: 3\nsuits: 3\n")
    (planned,) = plan(["game=coloured", "+game.max_raises=3"], multirun=False, config_dir=str(tmp_path)).runs
    assert planned.config.game == {"name": "leduc", "ranks": 3, "suits": 3, "max_raises": 3}


def test_a_damaged_file_of_configurations_is_one_sentence(tmp_path):
    (tmp_path / "game").mkdir()
    (tmp_path / "game" / "mine.yaml").write_text("name: [leduc\n")
    with pytest.raises(ReproError, match=r"mine\.yaml: it must be a YAML file"):
        plan(["game=mine"], multirun=False, config_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([KEY, "evaluaton=costs"], "can be given of a finished run (did you mean evaluation?)."),
        ([f"{KEY[:-1]}c"], f"there is no run with the key '{KEY[:-1]}c' (did you mean {KEY}?)."),
    ],
)
def test_misspelt_requests_for_measurements(monkeypatch, tmp_path, words, sentence):
    folder = tmp_path / "runs" / KEY
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("")
    if words[0] == KEY:
        (config,) = configs(*SMALL, multirun=False)
        with pytest.raises(ReproError) as caught:
            measured_otherwise(config, words[1:])
    else:
        with pytest.raises(ReproError) as caught:
            evaluate.run(words, str(tmp_path))
    assert sentence in str(caught.value)


# -- Lightning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("+trainer.gradient_clip=3", "trainer.gradient_clip is no key of pytorch_lightning.Trainer"),
        ("+trainer.detect_anomly=true", "(did you mean detect_anomaly?)."),
        ("+trainer.max_epochs=3", "trainer.max_epochs is 3; algorithm.iterations says that of a run, leave it out."),
        ("+trainer.max_steps=2", "trainer.max_steps is 2; algorithm.iterations says that of a run, leave it out."),
        ("+trainer.limit_val_batches=0", "trainer.limit_val_batches is 0; algorithm.snapshot_every says that of a run"),
        ("+trainer.precision=17", "Lightning's Trainer refuses that ("),
        ("trainer._target_=foo", "trainer._target_ is 'foo'; it must be the import path of a class ("),
        (
            f"{STOP}, patiense: 3}}",
            "stop.patiense is no key of pytorch_lightning.callbacks.EarlyStopping (did you mean p",
        ),
        ("+trainer.callbacks.x={_target_: pytorch_lightning.callbacks.EarlyStopping}", "x.monitor has no value; "),
        ("+trainer.callbacks.x=5", "trainer.callbacks.x is 5; it must be a mapping with a _target_"),
        ("+logger.x={_target_: nonsense}", "logger.x._target_ is 'nonsense'; it must be the import path of a class ("),
    ],
)
def test_what_lightning_would_not_take_is_refused(override, sentence):
    assert sentence in refused(override)


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "key", "size"),
    [
        ("algorithm=sd_cfr", "algorithm.value_capacity", "36.4 TiB"),
        ("algorithm=deep_cfr", "algorithm.strategy_capacity", "36.4 TiB"),
        ("algorithm=sd_cfr", "algorithm.traversals", "90.9 TiB"),
        ("algorithm=sd_cfr", "algorithm.value.batch_size", "18.2 TiB"),
        ("network=sd_cfr", "network.width", "2.78e+07 EiB"),
        ("network=brown", "network.card_width", "2.78e+07 EiB"),
        ("algorithm=nfsp", "algorithm.replay_capacity", "29.1 TiB"),
        ("algorithm=nfsp", "algorithm.reservoir_capacity", "36.4 TiB"),
        ("algorithm=nfsp", "algorithm.hands", "90.9 TiB"),
        ("algorithm=es_mccfr", "algorithm.traversals", "90.9 TiB"),
        ("algorithm=kuhn_post", "algorithm.width", "2.78e+07 EiB"),
        ("algorithm=dcvn", "algorithm.buckets", "7.11 PiB"),
        ("game=fhp", "evaluation.exploitability.boards", "378 TiB"),
        ("evaluation=disagreement", "evaluation.disagreement.rollouts", "931 GiB"),
    ],
)
def test_what_no_memory_holds_is_refused_with_both_sizes(monkeypatch, base, key, size):
    monkeypatch.setattr(memory, "memory_of_machine", lambda device: 24.0 * 2**30)
    needed = {"evaluation=disagreement": ["algorithm=sd_cfr_and_deep_cfr"], "algorithm=kuhn_post": ["game=kuhn"]}
    expected = f"{key} is 1000000000000; that takes some {size}, and this machine has 24 GiB."
    assert refused(base, *needed.get(base, []), f"{key}={10**12}") == expected


def test_what_no_disk_holds_is_refused_with_both_sizes(monkeypatch, tmp_path):
    new = tmp_path / "new"
    monkeypatch.setattr(memory, "room_on_disk", {new: 24.0 * 2**30}.__getitem__)
    assert refused("algorithm=dcvn", f"algorithm.subgames={10**12}", f"output_dir={new}") == (
        "algorithm.subgames is 1000000000000; that takes some 14.2 PiB on the disk of output_dir, which has room for "
        "24 GiB."
    )


def test_a_folder_that_is_yet_to_be_made_has_the_room_of_its_disk(tmp_path):
    assert memory.room_on_disk(tmp_path / "a" / "b") == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("linear_cfr", "game.name is fhp_limit; that takes some 2.01 GiB, and this machine has 1 GiB."),
        ("sd_cfr", "evaluation.exploitability.boards is None; that takes some 2.68 GiB, and this machine has 1 GiB."),
    ],
)
def test_tables_of_a_large_game_are_refused_where_they_do_not_fit(monkeypatch, algorithm, sentence):
    monkeypatch.setattr(memory, "memory_of_machine", lambda device: 2.0**30)
    assert refused("game=fhp_limit", f"algorithm={algorithm}", "evaluation.exploitability.boards=null") == sentence


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["network=fc", "network.layers=100000000"], "network.layers is 100000000; it must be at most 1000."),
        (["threads=100000"], "threads is 100000; it must be at most 1024."),
        ([f"seed={10**30}"], "it must be at most 9223372036854775807."),
        ([f"algorithm.iterations={10**12}"], "algorithm.iterations is 1000000000000; it must be at most 2147483647."),
        (["algorithm.iterations=2000000000", "algorithm.snapshot_every=1"], "leaves 1,000,000 snapshots at most."),
        (["algorithm=deep_cfr", "game=fhp", f"seeds=[{','.join(map(str, range(100)))}]"], "seeds has 100 numbers; the"),
        (["algorithm.value.learning_rate=nan"], "algorithm.value.learning_rate is nan; it must be a finite number."),
        (["algorithm.value.learning_rate=inf"], "algorithm.value.learning_rate is inf; it must be a finite number."),
        (["algorithm=solved_subgames", "algorithm.solver.tolerance=inf"], "tolerance is inf; it must be a finite num"),
        (["algorithm=solved_subgames", "algorithm.solver.tolerance=nan"], "tolerance is nan; it must be a finite num"),
        (["checkpoint_every_seconds=inf"], "checkpoint_every_seconds is inf; it must be a finite number."),
        (["target="], "target is ''; it must be of up to 100 letters, digits and . _ - alone."),
        (["algorithm.name='[/b]'"], "algorithm.name is '[/b]'; it must be of up to 100 letters"),
        (["output_dir="], "output_dir is ''; it must be the name of a folder."),
        (["output_dir='\0'"], "output_dir is '\\x00'; it must be the name of a folder."),
        (["game.ante=1e300"], "game leduc: ante is 1e+300; a finite number up to 1e9 is needed."),
    ],
)
def test_what_cannot_work_is_refused(overrides, sentence):
    assert sentence in refused(*overrides)


def test_published_settings_are_planned_on_any_machine(monkeypatch):
    """Only what is done must fit: a figure's page compares its runs with published ones."""
    monkeypatch.setattr(memory, "room_on_disk", lambda folder: 2.0**30)
    (planned,) = plan(["experiment=devn", "scale=paper"], multirun=False).runs
    with pytest.raises(ReproError, match=r"subgames is 10000000; that takes some 149 GiB on .* has room for 1 GiB\."):
        check_sizes([planned])


def test_exponents_may_be_infinite():
    (config,) = configs("algorithm=cfr", "algorithm.alpha=inf", multirun=False)
    assert config.algorithm.alpha == float("inf")


def test_sums_of_strategies_that_float32_cannot_hold_are_refused_on_holdem():
    """Weights of t^10, summed over 4,500 iterations, are larger; Leduc's are kept in float64."""
    asked = ("algorithm=dcfr", "algorithm.gamma=10", "algorithm.iterations=4500", "algorithm.snapshot_every=4500")
    plan(["game=leduc", *asked], multirun=False)
    plan(["game=fhp", *asked, "algorithm.iterations=3000", "algorithm.snapshot_every=3000"], multirun=False)
    with pytest.raises(ReproError, match=r"algorithm.gamma is 10.0; with algorithm.iterations=4500 its sums of strate"):
        plan(["game=fhp", *asked], multirun=False)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["seed=range(1000000000)"], "sweeping over seed asks for more than 10,000 runs; take fewer values."),
        (
            ["seed=range(200)", "network.width=range(1,100)"],
            "sweeping over seed network.width asks for more than 10,000",
        ),
        (["seed=range(3,1)"], "seed=range(3,1): the sweep is empty; it must have at least one value."),
        (["output_dir=a,b"], "output_dir is 'a' and 'b'; runs of one command share it."),
    ],
)
def test_sweeps_that_no_command_can_do(overrides, sentence):
    assert sentence in refused(*SMALL, *overrides, multirun=True)


@pytest.mark.parametrize("line", ["forse=1", "+forse=1", "experment=figure1", "sedd=3"])
def test_a_misspelt_key_is_told_before_the_algorithms_are_imported(line):
    """Which takes seconds."""
    code = f"import sys; from repro import run; run.main([{line!r}]); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "is no key of this configuration (did you mean " in done.stderr


ANSWERED = """
import sys
from importlib import import_module

command, *words = sys.argv[1:]
sys.argv = [command, *words]
try:
    status = import_module(command).main()
except SystemExit as ended:
    status = ended.code
print(status, *({"torch", "pandas", "mlflow", "numba", "matplotlib"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        *((f"{command} --help", "usage: ") for command in (
            "compare", "evaluate", "figure", "predict", "report.__main__", "rerun", "runs", "tune", "ui", "verify",
        )),
        ("runs --otput x", "--otput is unknown (did you mean --output?)"),
        ("run --output x", "--output is unknown (a run's is output_dir=FOLDER); "),
        ("rerun abc --output .", "there is no run with the key 'abc'."),
        ("compare abc abd --output .", "A: in "),
        ("compare abc abd --output none", "A: --output is 'none'; there is no folder /"),
        ("evaluate abc evaluation=costs --output .", "there is no run with the key 'abc'."),
        ("predict abc --output . --board - --pot 4000", "there is no run with the key 'abc'."),
        ("predict abc --output . --board - --pot x", "--pot is 'x'; it must be a number of chips."),
        ("runs abc --output .", "there is no run with the key 'abc'."),
        ("runs --output none", "--output is 'none'; there is no folder /"),
        ("figure figur1", "target 'figur1' is unknown (did you mean figure1?)"),
        ("figure figure1 --scale laptopp", "--scale is 'laptopp'; it must be one of "),
        ("figure figure1 --scale night", "figure1 has no scale night; it has "),
        ("verify figur1", "target 'figur1' is unknown (did you mean figure1?)"),
        ("ui figur1", "target 'figur1' is unknown (did you mean figure1?)"),
        ("ui --output none", "where nothing was ever run"),
    ],
)  # fmt: skip
def test_help_and_cheap_mistakes_are_answered_before_what_takes_seconds_is_imported(words, sentence, tmp_path):
    name, *options = words.split()
    call = [sys.executable, "-c", ANSWERED, f"repro.{name}", *options]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert sentence in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == ("0" if "--help" in options else "2")
