"""The figure that the documentation adds, made as any other."""

from __future__ import annotations

import re
import sys

import pytest

import paper_figures
from repro import figure
from repro.figures import claims, drawing, page, targets
from repro.figures.targets import ROOT

DOCUMENTED = (ROOT / "docs" / "figures.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENTED, re.DOTALL)
    return str(found)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_with_database")
def test_the_documented_figure_is_made(tmp_path, monkeypatch):
    folder = tmp_path / "paper_figures"
    folder.mkdir()
    (folder / "kuhn_gap.md").write_text(block("markdown"))
    (folder / "kuhn_gap.py").write_text(block("python"))
    monkeypatch.setattr(targets, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGES", folder)
    monkeypatch.setattr(paper_figures, "__path__", [*paper_figures.__path__, str(folder)])
    monkeypatch.setattr(sys, "argv", ["repro.figure", "kuhn_gap", "--output", str(tmp_path / "out"), "--jobs", "1"])
    assert figure.main() == 0
    made = tmp_path / "out" / "figures" / "kuhn_gap-laptop"
    assert (made / "kuhn_gap.png").stat().st_size > 10_000
    (claim,) = claims.read(made / "claims.json")
    assert claim.id == "sd_ends_below"
    assert claim.measured is not None
    assert claim.measured.n == 3

    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    drawing.publish("kuhn_gap", targets.Options("laptop", tmp_path / "out", 1, "cpu", force=False))
    text = (folder / "kuhn_gap.md").read_text()
    assert f"| SD-CFR ends below Deep CFR *(ours)* | – | {claim.measured} mA/g |" in text
    assert "    make kuhn_gap  # laptop scale; trainings took " in text
