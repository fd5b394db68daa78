"""What runs are called: titles of commands' runs, and names that tell them apart where lists cut them short."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from repro.config.keys import hyperparameters
from repro.planned import WHO, Run, curve_name, title_of, titled_together
from repro.targets import Options, plan_target, targets
from tests.helpers.commands import planned


def titled(*said: str) -> list[str]:
    """Titles of runs of one command, of which each said this."""
    config = planned("game=kuhn", "algorithm=cfr").config
    return [run.title for run in titled_together([Run([config], {}, f"{WHO} {words}") for words in said])]


def test_titles_begin_with_what_tells_runs_apart():
    jobs = [
        ["game=kuhn", f"algorithm.value.steps={steps}", "network.width=8", f"seed={seed}", "scale=smoke"]
        for steps in (1, 2)
        for seed in (0, 1)
    ]
    said = [title_of(job) for job in jobs]
    assert said == [f"{WHO} value.steps={steps} network.width=8" for steps in (1, 1, 2, 2)]
    assert titled(*said) == [f"value.steps={steps} {WHO} network.width=8" for steps in (1, 1, 2, 2)]
    assert titled("iterations=9", "memory=aggregated iterations=9") == [
        f"{WHO} iterations=9",
        f"memory=aggregated {WHO} iterations=9",
    ]


def test_titles_begin_with_as_few_words_as_tell_runs_apart():
    both = titled("steps=1 width=8", "steps=1 width=9", "steps=2 width=8", "steps=2 width=9", "steps=3 width=9")
    assert both == [
        f"steps=1 width=8 {WHO}", f"steps=1 width=9 {WHO}", f"steps=2 width=8 {WHO}", f"steps=2 width=9 {WHO}",
        f"steps=3 {WHO} width=9",
    ]  # fmt: skip
    # An experiment where nothing else tells.
    assert titled("experiment=a steps=1", "experiment=b steps=1", "experiment=b steps=2") == [
        f"experiment=a steps=1 {WHO}", f"experiment=b steps=1 {WHO}", f"steps=2 {WHO} experiment=b",
    ]  # fmt: skip


def named(target: str, scale: str) -> dict[tuple[str, str], set[str]]:
    """A target's settings by MLflow's experiment and the names of their read-outs."""
    _, runs = plan_target(target, Options(scale, Path("outputs"), 1, "cpu", False))
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
@pytest.mark.parametrize("target", sorted(targets()))
def test_no_two_settings_share_a_name_and_few_names_begin_alike(target):
    settings = named(target, "laptop")
    assert [name for name, found in settings.items() if len(found) > 1] == []
    beginnings = Counter((game, name[:CUT_AT].rstrip()) for game, name in settings)
    assert sum(many for many in beginnings.values() if many > 1) == BEGIN_ALIKE.get(target, 0)


def test_values_with_spaces_are_words_of_a_title():
    assert title_of(["network.hidden=[64, 32]", "game=kuhn"]).split() == [WHO, "network.hidden=[64,32]"]


def test_names_differ_in_their_first_characters():
    """Legends and lists cut what follows."""
    swept = [50, 100, 150, 200, 300, 500, 800, 1000]
    assert [name.split()[0] for name in names_of("figure9", "laptop")] == list(map(str, swept))
    names = names_of("figure1", "paper")
    assert {"sd_cfr", "deep_cfr", "1000_sd_cfr", "aggregated sd_cfr memory=aggregated"} < set(names)
    assert not any("figure1" in name for name in names)
    # An experiment is named where nothing else tells its runs apart.
    assert {"openspiel_leduc deep_cfr", "sd_cfr_leduc deep_cfr"} < set(names_of("d2cfr_baselines", "laptop"))
    assert {"dcvn", "devn", "devn_own_step", "exact"} < set(names_of("figure13", "laptop"))
    # Of the names of groups the list shows six characters or fewer.
    assert {"post", "post_greedy", "corrected", "greedy_corrected"} < set(names_of("kuhn", "laptop"))
    # Of yes and no the key says more.
    assert "no muon 0.2 sd_cfr value.muon=null value.focus=0.2" in names_of("fhp_fits", "laptop")


def test_runs_of_different_algorithms_are_different_curves_though_their_read_outs_have_one_name():
    """D2CFR's baselines: Deep CFR by two experiments, each read as `deep_cfr`."""
    settings = named("d2cfr_baselines", "smoke")
    assert [name for name, found in settings.items() if len(found) > 1] == []
    assert len(settings) > 5
