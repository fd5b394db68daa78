"""The report's page and the data in it: every claim once, numbers as published, curves as measured, one file."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from repro.figures import frame
from repro.figures.published import RESULTS, Target, cost_in_words, published
from repro.figures.targets import ROOT
from repro.report import page as report
from repro.report.__main__ import main, write
from repro.report.curves import curves_of, thinned
from repro.report.readme import readme_table

FEW = ("figure6", "figure2", "table5", "fhp_fits")


@pytest.fixture(scope="module")
def few() -> list[Target]:
    return [target for target in published() if target.name in FEW]


@pytest.fixture(scope="module")
def text(few, tmp_path_factory) -> str:
    return report.rendered(few, tmp_path_factory.mktemp("report"))


@pytest.mark.exhaustive
def test_every_claim_is_on_the_page_once(few, text):
    for result in (result for target in few for result in target.results):
        section = text[text.index(f'<section class="result" id="{result.target}-{result.scale}">') :]
        rows = re.findall(
            r'<tr class="claim" id="([^"]+)" data-verdict="(\w+)" data-id="([^"]+)">(.*?)</tr>', section, re.DOTALL
        )
        rows = [row for row in rows if row[0].startswith(f"{result.target}-{result.scale}-")]
        assert [(verdict, name) for _, verdict, name, _ in rows] == [
            (report.CLASSES[claim.verdict], claim.id) for claim in result.claims
        ]
        for (anchor, _, _, row), claim in zip(rows, result.claims, strict=True):
            shown = html.unescape(row)
            assert claim.statement in shown
            assert claim.verdict in shown
            assert str(claim.measured or "–") in shown
            assert text.count(f'id="{anchor}"') == text.count(f'href="#{anchor}"') == 1


@pytest.mark.exhaustive
def test_minutes_are_those_of_the_readmes_table_evaluations_too(tmp_path):
    named = {target.name: target for target in published()}
    for name in ("figure5", "figure13"):
        result = named[name].results[0]
        shown = html.unescape(report.rendered([named[name]], tmp_path))
        assert f'<td class="number">{cost_in_words(result)}</td>' in shown
        assert f"| {cost_in_words(result)} |" in readme_table([named[name]])
        evaluated = f"minutes of training and {result.evaluating:,.0f} of evaluations, one after another"
        assert (evaluated in shown) == (" + " in cost_in_words(result)) == (name == "figure13")


def test_verdicts_are_told_apart_by_signs_too():
    assert len(set(report.SIGNS.values())) == len(report.SIGNS)


def test_a_cell_says_how_sure_a_verdict_is(few):
    figure6 = next(target for target in few if target.name == "figure6")
    after = dict(zip((c.id for c in figure6.results[0].claims), report.judged(figure6.results[0]), strict=True))
    assert after["below_sd_cfr"].classes == "not weak"
    assert after["below_sd_cfr"].holm == "no longer decided"
    assert after["below_deep_cfr"].classes == "undecided"
    assert after["below_deep_cfr"].holm == ""
    figure2 = next(target for target in few if target.name == "figure2")
    by_id = {judged.claim.id: judged for judged in report.judged(figure2.results[0])}
    assert {judged.classes for judged in by_id.values()} == {"held", "held uncorrected"}


def test_the_page_is_one_file_that_loads_nothing(text):
    own = text.partition("<script>")[0]
    assert not re.search(r"<(?:script|img|iframe|source)[^>]*src=\"(?!data:)", own)
    assert not re.search(r"<link\b|@import|url\(", own)
    assert "default-src 'none'" in own
    assert text.count("<script>") == 2
    assert json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)[0])["curves"]


def test_text_of_pages_is_no_markup(few, tmp_path):
    links = report.Links(tmp_path, [target.name for target in few])
    assert "&lt;script&gt;" in links.markdown("a <script> here", inline=True)
    assert 'href="#figure6"' in links.markdown("[there](figure6.md#choices)", inline=True)
    away = re.findall('href="([^"]+)"', links.markdown("[code](../repro/run.py)", inline=True))[0]
    assert (tmp_path / away).resolve() == ROOT / "repro" / "run.py"
    assert report._for_a_script({"a": "</script>"}) == '{"a":"\\u003c/script>"}'


def test_curves_are_what_was_measured(few):
    result = next(target for target in few if target.name == "figure6").results[0]
    data = frame.read(frame.data_file(result.folder))
    curves = curves_of(result)
    assert curves[0]["label"] == "exploitability [mA/g]"
    assert [series["label"] for series in curves[0]["series"]] == ["D2CFR", "Deep CFR", "SD-CFR"]
    for series, readout in zip(curves[0]["series"], ("d2cfr", "deep_cfr", "sd_cfr"), strict=True):
        for axis, metric in (("values", "exploitability"), ("nodes_touched", "nodes_touched"), ("wall_seconds",) * 2):
            measured = frame.curves(data, metric, readout=readout)[series["steps"]]
            assert series["seeds"] == list(measured.index)
            np.testing.assert_allclose(np.array(series[axis], dtype=float), measured, rtol=1e-4)
        assert series["steps"][0] == data.step[data.readout == readout].min()
        assert series["steps"][-1] == data.step[data.readout == readout].max()


@pytest.mark.parametrize("target", ["figure1", "figure5", "figure7", "d2cfr_baselines"])
def test_runs_that_differ_have_names_that_do(target):
    result = next(each for each in published() if each.name == target).results[-1]
    for metric in curves_of(result):
        labels = [series["label"] for series in metric["series"]]
        assert len(set(labels)) == len(labels)


def test_single_measurements_are_no_curves(few):
    assert curves_of(next(target for target in few if target.name == "table5").results[0]) == []


@pytest.mark.parametrize("points", [1, 2, 120, 121, 5000])
def test_thinned_curves_keep_their_ends(points):
    kept = thinned(points)
    assert kept[0] == 0
    assert kept[-1] == points - 1
    assert len(kept) <= 120
    assert (np.diff(kept) > 0).all()


@pytest.mark.parametrize(("name", "said"), [("file", "is a file"), ("", "must be the name of a folder")])
def test_a_folder_that_cannot_be_is_refused(tmp_path, monkeypatch, capsys, name, said):
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["report", "--output", str(tmp_path / name) if name else ""])
    assert main() == 2
    told = capsys.readouterr().err
    assert told.startswith("error: --output is")
    assert said in told


def test_the_page_is_written_whole(few, tmp_path, monkeypatch):
    monkeypatch.setattr("repro.figures.published.published", lambda: few[-1:])
    file: Path = write(tmp_path / "new" / "folder")
    assert file.read_text().rstrip().endswith("</html>")
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]


def test_all_that_is_published_has_a_picture_to_embed():
    assert all((folder / f"{folder.name.rpartition('-')[0]}.png").is_file() for folder in RESULTS.iterdir())
