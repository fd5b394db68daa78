"""From command lines to runs: sweeps, keys, stages, and what bad input is answered with."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest
from hydra import compose

from repro.common.errors import ReproError
from repro.config.composed import CONF
from repro.config.game_defaults import with_defaults
from repro.config.jobs import jobs_of
from repro.config.keys import as_plain, evaluation_key, from_plain, training_key
from repro.config.schema import ReadoutConfig
from repro.evaluation.base import Costs
from repro.evaluation.measures import Exploitability, Match
from repro.plans.composing import composing
from repro.plans.planned import Run, stages
from repro.plans.planning import _run, check_scale, plan
from tests.helpers.commands import SMALL, call_here, configs, key_of, planned

# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_trainings_key_knows_nothing_of_who_looks_at_it():
    same = (
        ("output_dir=/tmp/a", "checkpoint_every_seconds=1", "force=true"), ("target=figure1", "scale=smoke"),
        ("+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}",), ("evaluation=[]",),
        ("evaluation=[exploitability,costs]",), ("algorithm.name=mine",), ("logger=csv",),
    )  # fmt: skip
    assert {key_of(*SMALL, *overrides) for overrides in same} == {key_of(*SMALL)}


def test_and_everything_of_what_is_trained():
    different = (
        "seed=1", "algorithm.traversals=1501", "algorithm.snapshot_every=10", "network.width=8", "threads=2",
        "+game.ranks=4", "algorithm.value.learning_rate=0.002",
    )  # fmt: skip
    keys = {key_of(*SMALL, override.replace("+game", "game")) for override in different}
    assert len({key_of(*SMALL), *keys}) == len(different) + 1


def test_an_evaluations_key_is_of_what_is_measured():
    (config,) = configs("algorithm=sd_cfr", multirun=False)

    def key(measured: object, capacity: int | None = None) -> str:
        algorithm = replace(config.algorithm, readouts={"sd_cfr": ReadoutConfig("ensemble", capacity)})
        return evaluation_key(replace(config, evaluation={"x": measured}, algorithm=algorithm), "x", "sd_cfr")

    assert key(Exploitability()) == key(Exploitability(readouts=["sd_cfr"], at="last"))
    assert len({key(Exploitability()), key(Exploitability(boards=3)), key(Exploitability(), 5), key(Match())}) == 4


def test_an_evaluations_key_knows_what_a_read_out_is_compared_with():
    (config,) = configs("algorithm=sd_cfr_and_deep_cfr", multirun=False)

    def key(capacity: int | None) -> str:
        readouts = {**config.algorithm.readouts, "capped": ReadoutConfig("ensemble", capacity)}
        algorithm = replace(config.algorithm, readouts=readouts)
        match = Match(opponents={"capped": "/capped"})
        return evaluation_key(replace(config, evaluation={"x": match}, algorithm=algorithm), "x", "deep_cfr")

    assert key(3) != key(4)


def test_a_configuration_survives_being_written_down():
    for overrides in (SMALL, ("algorithm=cfr",), ("algorithm=d2cfr", "evaluation=[exploitability,costs]")):
        (config,) = configs(*overrides, multirun=False)
        assert as_plain(from_plain(as_plain(config))) == as_plain(config)
        assert from_plain(as_plain(config)) == config


def test_a_field_that_was_added_is_in_a_key_only_where_it_does_something():
    """The first key is that of a run that was made before `passed_up` was known."""
    paper = ["experiment=figure1", "scale=paper", "seed=0"]
    keys = [training_key(c) for c in configs(*paper, "algorithm.passed_up=mean,maximum")]
    assert keys[0] == "25b47dcb670a"
    assert keys[0] != keys[1]


# -- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_plans_what_its_runs_alone_would_be():
    found = [training_key(c) for c in configs(*SMALL, "network.width=8,16", "seed=3,7", "device=cpu")]
    assert found == [key_of(*SMALL, f"network.width={w}", f"seed={s}") for w in (8, 16) for s in (3, 7)]
    with pytest.raises(ReproError, match="seed"):
        plan([*SMALL, "seed=1,x"], multirun=True)


@pytest.mark.parametrize("swept", [
    ("algorithm.value.steps=10,20", "algorithm.value.muon=null,0.1", "seed=range(2)"),
    ("game=fhp,fhp_limit", "algorithm.value.steps=10,20"),
    # What is given last counts, whichever of the two is about a part of the other.
    ("algorithm.value={steps: 5}", "algorithm.value.steps=10,20"),
    ("algorithm.value.steps=10,20", "algorithm.value={steps: 5}"),
    ("algorithm.value.steps=10,20", "++algorithm.value.steps=5"),
    ("seed=range(2)", "++seed=5"),
    ("+algorithm.readouts.mine={kind: ensemble, capacity: 5}", "algorithm.readouts.mine.capacity=3,null"),
    ("evaluation=[exploitability]", "evaluation.exploitability.boards=null,30"),
])  # fmt: skip
def test_values_of_a_sweep_are_what_hydra_alone_composes(swept):
    fixed = ("experiment=fhp_limit", "scale=laptop", "algorithm.iterations=20", "output_dir=/tmp/a")
    with composing(None):
        jobs = jobs_of([*fixed, *swept], True)
        alone = [as_plain(_run(compose("config", job), job, [CONF]).config) for job in jobs]
    assert [as_plain(config) for config in configs(*fixed, *swept)] == alone


@pytest.mark.parametrize("typed", [
    ("experiment=figure1", "scale=laptop", "output_dir=/tmp/a", "output_dir=b"),
    ("game=kuhn", "output_dir=/tmp/a", "output_dir='/tmp/my runs'"), ("game=kuhn", "output_dir=b", "output_dir=/tmp/a"),
    ("game=kuhn", "seed=5", "seed=07"), ("game=kuhn", "seed=07", "seed=5"), ("game=kuhn", "seed=5", "seed=6"),
    ("experiment=figure1", "scale=laptop", "algorithm.value.steps=5", "algorithm.value.steps= 6"),
    ("experiment=figure1", "algorithm.value.steps=5", "algorithm.value.steps='${algorithm.average.steps}'"),
    ("experiment=figure1", "algorithm.value.steps='${algorithm.average.steps}'", "algorithm.value.steps=5"),
])  # fmt: skip
def test_of_a_key_that_is_typed_twice_the_last_value_counts_as_hydra_has_it(typed):
    with composing(None):
        alone = _run(with_defaults(typed, [CONF])[0], typed, [CONF]).config
    assert as_plain(planned(*typed).config) == as_plain(alone)


def test_of_values_typed_twice_one_that_cannot_be_is_told():
    with pytest.raises(ReproError, match="seed is -1; it must be at least 0"):
        planned("game=kuhn", "seed=5", "seed=-1")


def test_files_of_a_folder_of_ones_own_may_change_in_a_process(tmp_path):
    file = tmp_path / "experiment" / "mine.yaml"
    file.parent.mkdir()
    for steps in (7, 8):
        file.write_text(f"# @package _global_\nalgorithm: {{value: {{steps: {steps}}}}}\n")
        (run,) = plan(["experiment=mine", "seed=1"], False, str(tmp_path)).runs
        assert run.config.algorithm.value.steps == steps


def test_what_was_composed_before_changes_nothing():
    """Choices are composed once in a process; what one run sets in them no other has."""
    first = configs("experiment=fhp_limit", "scale=laptop", "algorithm.iterations=20", "output_dir=/tmp/a", "seed=3")
    (other,) = configs("experiment=fhp_limit", "scale=laptop", multirun=False)
    with composing(None):
        alone = _run(compose("config", chosen := ["experiment=fhp_limit", "scale=laptop"]), chosen, [CONF]).config
    assert as_plain(other) == as_plain(alone) != as_plain(first[0])


def test_defaults_of_a_game_are_told_of_every_run():
    notes = [plan([*SMALL[:2], f"seed={seed}", f"output_dir=/tmp/{seed}"], False).notes for seed in (0, 1)]
    assert notes[0] == notes[1]
    assert "by default" in notes[0][0]


@pytest.mark.parametrize("bad", ["algorithm.value.steps=10,x", "algorithm.value.step=10,20", "network.none=1,2"])
def test_a_value_that_cannot_be_is_told_as_it_would_be_alone(bad):
    key, _, values = bad.partition("=")
    with pytest.raises(ReproError) as alone:
        configs("experiment=kuhn_deep_cfr", f"{key}={values.split(',')[-1]}", multirun=False)
    with pytest.raises(ReproError, match=re.escape(str(alone.value))):
        configs("experiment=kuhn_deep_cfr", bad)


def test_keys_of_a_swept_choice_can_be_given():
    """Hydra alone refuses them: they are not keys of the algorithm that is the default."""
    common = ["game=river_subgames", "algorithm.subgames=700", "algorithm.buckets=null", "seed=0,1"]
    planned = configs("algorithm=dcvn,devn", *common)
    assert [(c.algorithm.name, c.seed) for c in planned] == [(n, s) for n in ("dcvn", "devn") for s in (0, 1)]
    assert {c.algorithm.subgames for c in planned} == {700}
    assert {c.algorithm.buckets for c in planned} == {None}
    for wrong in ("algorithm.subgamez=7", "algorithm.bucketz=null"):
        with pytest.raises(ReproError, match=r"subgamez|bucketz"):
            plan(["algorithm=dcvn,devn", wrong], multirun=True)
    for line, value in (
        ("algorithm.buckets=NULL", None), ("algorithm.buckets= 800", 800),
        ("algorithm.buckets='${algorithm.batch_size}'", 100),
    ):  # fmt: skip
        planned = configs("algorithm=dcvn,devn", "game=river_subgames", line)
        assert {c.algorithm.buckets for c in planned} == {value}, line


def test_of_a_key_that_is_given_several_times_the_last_counts():
    assert [c.seed for c in configs("seed=range(5)", "seed=1,2", "seed=4")] == [4]
    assert [c.algorithm.name for c in configs("algorithm=cfr", "algorithm=dcfr,cfr_plus")] == ["dcfr", "cfr_plus"]


def test_what_is_hydras_is_no_part_of_a_run():
    assert len(configs(*SMALL, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1")) == 2


# -- plans -----------------------------------------------------------------------------------------------------------


def test_runs_that_train_the_same_are_one_that_measures_both():
    once = plan([*SMALL, "target=figure1", "scale=laptop"], multirun=False).runs
    opponent = key_of(*SMALL, "seed=5")
    again = plan([*SMALL, "target=figure2", "scale=smoke", "evaluation=[exploitability,match]",
                  "+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}",
                  f"+evaluation.match.opponents.five={opponent}/sd_cfr"], multirun=False).runs  # fmt: skip
    five = plan([*SMALL, "seed=5"], multirun=False).runs
    first, second = stages([*once, *again, *five])
    assert [run.key for run in first] == [five[0].key], "an opponent comes first"
    (both,) = second
    assert both.labels == {"figure1": "laptop", "figure2": "smoke"}
    assert set(both.config.evaluation) == {"exploitability", "match"}
    assert set(both.config.algorithm.readouts) == {"sd_cfr", "deep_cfr", "sd_cfr_9"}


def test_evaluations_of_one_name_that_differ_are_both_made():
    (run,) = plan(SMALL, multirun=False).runs
    other = replace(run.config, evaluation={"exploitability": Costs()})
    ((merged,),) = stages([run, Run([other], {"x": "y"})])
    assert {name: type(e) for name, e in merged.config.evaluation.items()} == {
        "exploitability": Exploitability, "exploitability_2": Costs,
    }  # fmt: skip


def test_the_same_evaluation_asked_for_twice_is_one_that_does_for_both():
    """They have one key, and so one file: two would overwrite each other's rows."""
    (run,) = plan(SMALL, multirun=False).runs

    def wanted(*measures: Exploitability) -> Exploitability:
        runs = [Run([replace(run.config, evaluation={"x": measure})], {}) for measure in measures]
        ((merged,),) = stages(runs)
        assert list(merged.config.evaluation) == ["x"]
        return merged.config.evaluation["x"]

    both = wanted(Exploitability(["sd_cfr"], "last"), Exploitability(["deep_cfr"], "snapshots"))
    assert both == Exploitability(["sd_cfr", "deep_cfr"], "snapshots")
    assert wanted(Exploitability(["sd_cfr"], "last"), Exploitability(None, "last")) == Exploitability(None, "last")


def test_runs_that_need_each_other_are_refused():
    (run,) = plan(SMALL, multirun=False).runs
    needy = replace(run.config, evaluation={"match": Match(opponents={"self": run.key})})
    with pytest.raises(ReproError, match="need each other"):
        stages([Run([needy], {})])


def test_a_reference_is_the_key_of_the_run_that_the_overrides_ask_for():
    reference = '${run_key:"algorithm=nfsp","game=kuhn"}'
    planned = configs(*SMALL, "seed=0,3", "evaluation=match", f"+evaluation.match.opponents.nfsp='{reference}'")
    assert [c.evaluation["match"].opponents["nfsp"] for c in planned] == [
        key_of("algorithm=nfsp", "game=kuhn", f"seed={seed}") for seed in (0, 3)
    ]
    seventh = '${run_key:"algorithm=nfsp","game=kuhn","seed=7"}'
    (third,) = configs(*SMALL, "seed=3", "evaluation=match", f"+evaluation.match.opponents.nfsp='{seventh}'")
    assert third.evaluation["match"].opponents["nfsp"] == key_of("algorithm=nfsp", "game=kuhn", "seed=7")


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("game=chess", "Could not find 'game/chess'"),
        (
            "game.name=chess",
            "game 'chess' is unknown; the games are big_leduc, fhp, fhp5, fhp_limit, hnlh, hunl_pot, kuhn,",
        ),
        ("game.ranks=1", "game leduc: ranks is 1; at least 2"),
        ("game.ranks=many", "game leduc: ranks is 'many'; a whole number is needed"),
        ("game.ranls=4", "ranls"),
        ("algorithm.traversals=-5", "algorithm.traversals is -5; it must be at least 1."),
        ("algorithm.traversals=few", "algorithm.traversals"),
        ("algorithm.traversal=5", "traversal"),
        ("algorithm.value_capacity=0", "algorithm.value_capacity is 0; it must be at least 1."),
        ("algorithm.value.learning_rate=0", "algorithm.value.learning_rate is 0.0; it must be greater than 0."),
        ("algorithm.memory=list", "algorithm.memory is 'list'; it must be one of reservoir, window, aggregated."),
        ("algorithm.readouts.sd_cfr.capacity=0", "algorithm.readouts.sd_cfr.capacity is 0; it must be at least 1."),
        ("+algorithm.readouts.x={kind: ensembel}", "x.kind is 'ensembel'; for sd_cfr it must be one of"),
        ("+algorithm.readouts.x={kind: ensemble, cap: 3}", "it must be a mapping with the keys kind and capacity."),
        ("+algorithm.readouts.training={kind: ensemble}", "the name must be of a-z, 0-9 and _, and not 'training'."),
        ("+algorithm.readouts.x={kind: average_network, capacity: 3}", "only an ensemble has one."),
        ("network.layers=2", "network.layers is 2, but the architecture sd_cfr has a fixed depth"),
        ("network.card_width=64", "network.card_width is 64, but the architecture sd_cfr has no branches"),
        ("network.architecture=brown", "network.card_width has no value; the architecture brown needs"),
        ("algorithm=chess", "Could not find 'algorithm/chess'"),
        ("network.width=0", "network.width is 0; it must be at least 1."),
        ("algorithm=cfr network=fc", "network is fc, but the algorithm cfr has none"),
        ("network=null", "network=null"),
        ("game=null", "game=null"),
        ("algorithm=cfr network.width=3", "network.width=3"),
        ("+game.device=cuda", "game.device is 'cuda'"),
        ("algorithm=cfr algorithm.alpha=nan", "algorithm.alpha is nan; it must be from -10 to 10, or inf."),
        ("algorithm=cfr '+algorithm.readouts.x={kind: ensemble}'", "must be one of average, current"),
        ("seed=-1", "seed is -1; it must be at least 0."),
        ("device=tpu", "device is 'tpu'; it must be one of cpu, cuda."),
    ],
)
@pytest.mark.parametrize("multirun", [False, True])
def test_bad_configuration_is_refused_before_any_work(override, sentence, multirun):
    with pytest.raises(ReproError) as caught:
        plan(shlex.split(override) if override.startswith("algorithm=") else [override], multirun)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_read_out_can_be_added_on_the_command_line():
    (config,) = configs("+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}", multirun=False)
    assert config.algorithm.readouts["sd_cfr_20"] == ReadoutConfig("ensemble", 20)
    assert config.algorithm.readouts["sd_cfr"] == ReadoutConfig("ensemble")


def test_one_bad_value_in_a_sweep_stops_all_of_it_before_any_work(tmp_path):
    done = call_here("-m", *SMALL, "algorithm.traversals=200,-5", f"output_dir={tmp_path / 'never'}")
    assert done.returncode == 2
    assert done.stderr == "error: algorithm.traversals is -5; it must be at least 1.\n"
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("override", ["seed=0,1", "algorithm.traversals=range(1,4)", "algorithm=cfr,cfr_plus"])
def test_several_values_without_m_are_refused_in_one_sentence(tmp_path, override):
    done = call_here(override, f"output_dir={tmp_path / 'never'}")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {override}: several values need -m, as in python -m repro.run -m {shlex.quote(override)}; a list is "
        "one value, in brackets, such as [0,1].\n"
    )
    assert not (tmp_path / "never").exists()


def test_a_list_and_a_text_with_a_comma_are_one_value():
    both = configs("game=fhp", "algorithm=deep_cfr", "seeds=[0,1]", "output_dir='a,b'", multirun=False)
    assert [config.seed for config in both] == [0, 1]


def test_an_unfinished_list_is_one_sentence(tmp_path):
    done = call_here("-m", "seed=[1", f"output_dir={tmp_path}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


def test_what_is_said_of_an_evaluation_that_is_not_selected():
    (config,) = configs("experiment=figure2", "evaluation=costs", multirun=False)
    assert list(config.evaluation) == ["costs"], "figure 2's number of boards goes with what it is about"
    with pytest.raises(ReproError, match=r"evaluation match is not selected; add evaluation=\[match\]"):
        plan(["+evaluation.match.opponents.x=KEY"], multirun=False)


def test_networks_wait_for_the_subgames_that_they_learn_from():
    networks = plan(["algorithm=dcvn,devn"], multirun=True).runs
    solved = plan(["algorithm=solved_subgames"], multirun=False).runs
    small = plan(SMALL, multirun=False).runs
    assert [[run.config.algorithm.name for run in stage] for stage in stages([*networks, *small, *solved])] == [
        ["sd_cfr_and_deep_cfr", "solved_subgames"], ["dcvn", "devn"],
    ]  # fmt: skip


def test_a_scale_that_an_experiment_does_not_have_is_refused():
    with pytest.raises(ReproError, match="scale is night; the experiment figure1 has no conf/departures/night/figure1"):
        plan(["experiment=figure1", "scale=night"], multirun=False)
    assert plan(["experiment=figure1", "scale=paper"], multirun=False).runs


def test_a_scale_of_no_experiment_is_refused():
    with pytest.raises(ReproError, match="scale is smoke, which changes nothing unless there is an experiment"):
        check_scale(plan(["game=leduc", "scale=smoke"], multirun=False))
    for fine in (["experiment=figure1", "scale=smoke"], ["game=leduc"], ["scale=smoke", "target=figure1"]):
        check_scale(plan(fine, multirun=False))
