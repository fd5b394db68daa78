"""What runs are called: titles of commands' runs (what names become of them at all targets: `test_experiments`)."""

from __future__ import annotations

from repro.plans.naming import WHO, title_of, titled_together
from repro.plans.planned import Run
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


def test_values_with_spaces_are_words_of_a_title():
    assert title_of(["network.hidden=[64, 32]", "game=kuhn"]).split() == [WHO, "network.hidden=[64,32]"]
