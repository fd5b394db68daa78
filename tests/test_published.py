"""What is published, collected: verdicts as in `claims.json`, findings that agree with them, and the README's table."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from typing import Any

import pytest
import yaml

from repro.common.errors import ReproError
from repro.figures import drawing, page
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim, Verdict, after_holm
from repro.figures.listing import print_targets
from repro.figures.published import RESULTS, SOURCES, Result, command_of, minutes_in_words, published
from repro.figures.targets import ROOT, Options, _order, module_of, targets
from repro.report.readme import README, VERDICTS_PICTURE, readme_table, with_table
from repro.report.verdicts import drawn, kind

EVERY = published()


def test_every_published_claim_is_collected_once_with_its_verdict_and_number():
    collected = {(r.target, r.scale): r.claims for target in EVERY for r in target.results}
    folders = sorted(path.parent for path in RESULTS.glob("*/claims.json"))
    assert len(collected) == len(folders)
    for folder in folders:
        target, _, scale = folder.name.rpartition("-")
        claims, expected = collected[target, scale], json.loads((folder / "claims.json").read_text())
        assert [(c.id, c.verdict, c.paper, c.p) for c in claims] == [
            (e["id"], e["verdict"], e["paper"], e["p"]) for e in expected
        ]
        assert len({c.id for c in claims}) == len(claims)
        means = [c.measured and (c.measured.mean, c.measured.n) for c in claims]
        assert means == [e["measured"] and (e["measured"]["mean"], e["measured"]["n"]) for e in expected]


def test_targets_are_all_there_in_order():
    names = [target.name for target in EVERY]
    assert names == targets()
    assert names[:12] == [f"figure{number}" for number in (*range(1, 12), 13)]
    assert names[12:18] == [f"table{number}" for number in range(1, 7)]
    assert {target.source for target in EVERY} == set(SOURCES)


def test_pages_of_other_names_come_last_numbered_or_not():
    assert sorted(["ablation2", "kuhn", "table1", "ablation", "figure10", "figure9"], key=_order) == [
        "figure9", "figure10", "table1", "ablation", "ablation2", "kuhn",
    ]  # fmt: skip


def test_the_most_advanced_scale_comes_first():
    figure1 = next(target for target in EVERY if target.name == "figure1")
    assert [result.scale for result in figure1.results] == ["paper", "laptop"]
    recorded = json.loads((RESULTS / "figure1-laptop" / "provenance.json").read_text())["sweeps"]
    assert figure1.results[1].minutes == pytest.approx(sum(sum(sweep["wall_seconds"]) for sweep in recorded) / 60)
    checks = sum(claim.check for claim in figure1.results[0].claims)
    assert checks
    assert len(figure1.results[0].verdicts) == len(figure1.results[0].claims) - checks


def test_verdicts_after_holms_correction_claim_by_claim():
    claims = [
        Claim("sure", "", "", Verdict(HELD, 0.001), None, ""), Claim("weak", "", "", Verdict(HELD, 0.04), None, ""),
        Claim("counted", "", "", HELD, None, ""), Claim("not", "", "", Verdict(DID_NOT_HOLD, 0.01), None, ""),
        Claim("check", "", "", Verdict(HELD, 1e-9), None, "", check=True),
        Claim("open", "", "", Verdict(UNDECIDED, 0.3), None, ""), Claim("short", "", "", NOT_TESTABLE, None, ""),
    ]  # fmt: skip
    assert after_holm(claims) == [HELD, UNDECIDED, None, DID_NOT_HOLD, None, UNDECIDED, None]


# -- commands that repeat --------------------------------------------------------------------------------------------

RESULTS_OF_ALL = [result for target in EVERY for result in target.results]


def name_of(result: Result) -> str:
    return f"{result.target}-{result.scale}"


@pytest.mark.parametrize("result", RESULTS_OF_ALL, ids=name_of)
def test_pages_have_the_commands(result):
    text = page.page_of(result.target).read_text()
    for sweep in result.provenance["sweeps"]:
        now = f" (now `{command_of(sweep)}`)" if command_of(sweep) != sweep["command"] else ""
        assert f"`{sweep['command']}`{now} at commit " in text


# -- findings --------------------------------------------------------------------------------------------------------

_INTERVAL = re.compile(r"-?[\d.,]+ \[[^]]+\](?!\()")


@pytest.mark.parametrize("target", EVERY, ids=lambda target: target.name)
def test_a_finding_is_of_the_most_advanced_scale(target):
    headline = target.finding.headline
    assert len(headline.split()) < 50, "of one sentence, for a table"
    assert target.finding.scale == (target.results[0].scale if target.results else None)
    text = page.page_of(target.name).read_text()
    if target.results:
        picture = re.search(r"<!-- end finding -->\n\n!\[[^]]*\]\(([^)]+)\)", text)
        assert picture
        assert page.PAGES / picture.group(1) == target.results[0].picture


@pytest.mark.parametrize("target", [target for target in EVERY if target.results], ids=lambda target: target.name)
def test_intervals_in_a_finding_are_published(target):
    """Every number with an interval that a finding has, or what is said further of it, stands in what is computed on
    the page, to the digit."""
    text = page.page_of(target.name).read_text()
    computed = text[
        text.index(f"<!-- results {target.finding.scale} -->") : text.index(f"<!-- end {target.finding.scale} -->")
    ]
    more = re.findall(r"^\*\*(?:We find, too|Why, further)\*\*: (.*)$", text, re.MULTILINE)
    for sentence in (*target.finding.sentences.values(), *more):
        for interval in _INTERVAL.findall(sentence):
            assert interval in computed, interval


def test_intervals_in_the_readme_are_published():
    """Each stands on a page that is linked to in the same point."""
    points = re.findall(r"^- \*\*.*$", README.read_text(), re.MULTILINE)
    found = [(interval, point) for point in points for interval in _INTERVAL.findall(point)]
    assert len(found) >= 2
    for interval, point in found:
        pages = [page.page_of(name).read_text() for name in re.findall(r"\(paper_figures/(\w+)\.md\)", point)]
        assert any(interval in text for text in pages), interval


@pytest.mark.parametrize(
    "opening",
    ["", "<!-- finding -->\n**We find** (scale `laptop`): A.\n<!-- end finding -->\n",
     "<!-- finding -->\n**The paper says**: A.\n\n**We find**: B.\n\n**Why**: C.\n<!-- end finding -->\n",
     "<!-- finding -->\n**We ask**: A.\n\n**We find** (scale `night`): B.\n\n**Why**: C. D.\n<!-- end finding -->\n",
     "text before\n\n<!-- finding -->\n**Not run yet**: A.\n<!-- end finding -->\n"],
)  # fmt: skip
def test_a_page_that_opens_otherwise_is_refused(tmp_path, monkeypatch, opening):
    monkeypatch.setattr(page, "PAGES", tmp_path)
    (tmp_path / "figure1.md").write_text(f"# Title\n\n{opening}\ntext\n")
    with pytest.raises(ReproError, match=r"figure1\.md"):
        page.finding("figure1")


def test_commands_have_what_their_trainings_took_beside_them():
    for target in EVERY:
        text = page.page_of(target.name).read_text()
        for result in target.results:
            sweeps = result.provenance["sweeps"]
            assert page.with_minutes(text, target.name, result.scale, sweeps) == text, result.folder
            scale = "" if result.scale == "laptop" else f" SCALE={result.scale}"
            (line,) = re.findall(rf"^    make {target.name}{scale} +#.*$", text, re.MULTILINE)
            recorded = all(None not in sweep.get("evaluation_seconds", [None]) for sweep in sweeps)
            evaluating = r"evaluations [\d.,]+" if recorded else "without evaluations"
            clock = "(, partly by the clock|, by the clock)" if result.on_the_clock else ""
            told = f"; trainings took {minutes_in_words(result)} minutes{clock}, one after another, {evaluating}"
            assert re.search(f"{told}$", line), line


def test_runs_that_sweeps_share_are_counted_once():
    old = [{"wall_seconds": [60.0, 60.0, 30.0]}, {"wall_seconds": [60.0, 90.0]}]
    assert page.minutes(old) == 4
    # Whose names are known are told apart whatever they took.
    named = [{"wall_seconds": [60.0, 60.0], "rerun": "python -m repro.rerun a b"},
             {"wall_seconds": [60.0, 60.0], "rerun": "python -m repro.rerun b c"}]  # fmt: skip
    assert page.minutes(named) == 3
    # Of processor time where it is known.
    assert page.training_seconds({"wall_seconds": [60.0, 4000.0], "cpu_seconds": [None, 50.0]}) == [60.0, 50.0]
    assert page.minutes([{"wall_seconds": [60.0, 4000.0], "cpu_seconds": [70.0, 50.0]}]) == 2


def test_minutes_of_evaluations_are_told_where_all_are_known(tmp_path, monkeypatch):
    rerun = "python -m repro.rerun a b"
    one = {
        "wall_seconds": [60.0, 60.0],
        "rerun": rerun,
        "evaluation": {"x.boards": 1},
        "evaluation_seconds": [60.0, 0.0],
    }
    other = {**one, "evaluation": {"x.boards": 2}, "evaluation_seconds": [240.0, 0.0]}
    assert page.evaluation_minutes([one, one, other]) == 5, "the same evaluations of the same runs are made once"
    assert page.evaluation_minutes([one, {**other, "evaluation_seconds": [1.0, None]}]) is None
    assert page.evaluation_minutes([one, {"wall_seconds": [1.0]}]) is None
    monkeypatch.setattr(page, "PAGES", tmp_path)
    usage = "    make figure1  # laptop scale"
    told = f"{usage}; trainings took 2 minutes, one after another, evaluations 5"
    by_processor = [{**sweep, "cpu_seconds": [60.0, 60.0]} for sweep in (one, other)]
    assert page.with_minutes(usage, "figure1", "laptop", by_processor) == told
    partly = told.replace("2 minutes", "2 minutes, partly by the clock")
    assert page.with_minutes(usage, "figure1", "laptop", [one, by_processor[1]]) == partly
    earlier = page.with_minutes(told, "figure1", "laptop", [{"wall_seconds": [60.0]}])
    assert earlier == f"{usage}; trainings took 1 minutes, by the clock, one after another, without evaluations"


def test_a_newly_published_scale_is_the_picture_on_top(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGES", tmp_path)
    opening = "# Title\n\n<!-- finding -->\n**Not run yet**: A.\n<!-- end finding -->\n\n"
    (tmp_path / "figure1.md").write_text(f"{opening}text\n")
    (tmp_path / "results" / "figure1-laptop").mkdir(parents=True)
    first = page._with_top_picture(f"{opening}text\n", "figure1", "laptop")
    assert first == f"{opening}![Title](results/figure1-laptop/figure1.png)\n\ntext\n"
    assert page._with_top_picture(first, "figure1", "paper") == first.replace("laptop", "paper")
    assert page._with_top_picture(first, "figure1", "smoke") == first


def test_what_is_drawn_from_published_data_is_published_with_these(tmp_path, monkeypatch):
    """A rule of a claim, or a picture, is changed without a run."""
    results, pages, target = tmp_path / "results", tmp_path / "pages", "figure9"
    shutil.copytree(RESULTS / f"{target}-laptop", results)
    pages.mkdir()
    text = page.page_of(target).read_text()
    begin, end = "<!-- results laptop -->\n", "<!-- end laptop -->"
    blank = text[: text.index(begin) + len(begin)] + text[text.index(end) :]
    (pages / f"{target}.md").write_text(blank)
    (results / "claims.json").write_text("[]")
    before = {name: (results / name).read_bytes() for name in ("data.csv.gz", "provenance.json")}
    monkeypatch.setattr(drawing, "results_of", lambda target, scale: results)
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGES", pages)
    options = Options("laptop", tmp_path / "outputs", 1, "cpu", False)
    drawing.draw_again(target, options)
    drawing.publish(target, options)
    assert {name: (results / name).read_bytes() for name in before} == before
    assert [claim["id"] for claim in json.loads((results / "claims.json").read_text())]
    filled = (pages / f"{target}.md").read_text()
    assert "### Claims" in filled
    assert "### Made with" in filled


@pytest.mark.parametrize("result", RESULTS_OF_ALL, ids=name_of)
def test_what_all_sweeps_depart_in_is_told_once(result):
    sweeps = result.provenance["sweeps"]
    told = page.departures(sweeps)
    shared = dict(told[0][1]) if told[0][0] == page.EVERY_SWEEP else {}
    for sweep in sweeps:
        own = [keys for names, keys in told if page.name_of(sweep) in names.split(", ")]
        assert sweep["deviations_from_paper"] in [shared | keys for keys in own or [{}]]
    assert not any(shared.keys() & keys.keys() for name, keys in told if name != page.EVERY_SWEEP)


def test_what_made_all_sweeps_is_told_once():
    (result,) = (r for r in RESULTS_OF_ALL if name_of(r) == "deep_cfr_ablations-laptop")
    sweeps = result.provenance["sweeps"]
    told = page._made_with(sweeps)
    assert told.count("All on AMD EPYC with 2 cores, 1 thread(s) per run; python ") == 1
    assert told.count(" mlflow ") == 1
    assert [command_of(sweep) in told for sweep in sweeps] == [True] * len(sweeps)
    other = {**sweeps[0], "cpu": ["another"]}
    apart = page._made_with([other, *sweeps[1:]])
    assert "; on another with 2 cores" in apart
    assert apart.count(" mlflow ") == len(sweeps)
    assert page._made_with(sweeps[:1]).count("\nOn AMD EPYC") == 1


def test_runs_of_several_commits_are_told_apart():
    first, second = "1" * 40, "2" * 40
    sweep: dict[str, Any] = {"git_commit": [f"{first}, {second}", second], "git_dirty": ["false"]}
    assert page.commits(sweep) == "111111111111, 222222222222", "which made which was not recorded"
    sweep |= {"git_commit": [first, second], "commits": [[first], [first, second], [first]]}
    assert page.commits(sweep) == "111111111111 (2 runs), 111111111111 and then 222222222222 (1 run)"
    assert page.commits({**sweep, "commits": [[first], []]}) == "111111111111 (1 run), unknown (1 run)"
    one = {"git_commit": [first], "git_dirty": ["true"], "commits": [[first], [first]]}
    assert page.commits(one) == "111111111111; with uncommitted changes"


def test_other_targets_data_are_named_where_a_picture_has_them():
    """And are still those that are published: a picture and its verdicts are of them, too."""
    found = 0
    for target, module in ((t, module_of(t.name)) for t in EVERY):
        for result in target.results:
            beside = result.provenance.get("beside", [])
            assert [part["results"] for part in beside] == (
                module.beside(result.scale) if hasattr(module, "beside") else []
            )
            for part in beside:
                folder = RESULTS / part["results"]
                assert part["data_sha256"] == hashlib.sha256((folder / "data.csv.gz").read_bytes()).hexdigest()
                made = json.loads((folder / "provenance.json").read_text())["sweeps"]
                assert part["git_commit"] == sorted({commit for sweep in made for commit in sweep["git_commit"]})
                assert f"`{part['results']}`" in page.page_of(target.name).read_text()
                found += 1
    assert found


def test_what_was_drawn_beside_other_data_than_are_published_is_refused(tmp_path):
    module, file = module_of("figure3"), tmp_path / "provenance.json"
    now = drawing._beside(module, "paper")
    file.write_text(json.dumps({"sweeps": [], **now}))
    drawing._check_beside(file, module, "paper", drawn_from_published=False)
    older = {"beside": [{**now["beside"][0], "data_sha256": "another"}]}
    file.write_text(json.dumps({"sweeps": [], **older}))
    with pytest.raises(ReproError, match="what is published of figure1-laptop has changed since this was drawn"):
        drawing._check_beside(file, module, "paper", drawn_from_published=False)
    # What is drawn from published data has no record of its own yet.
    drawing._check_beside(file, module, "paper", drawn_from_published=True)
    assert json.loads(file.read_text()) == {"sweeps": [], **now}
    assert drawing._beside(module_of("figure6"), "paper") == {}


@pytest.mark.exhaustive
def test_who_draws_is_told_what_is_judged_otherwise_than_published(tmp_path, monkeypatch, capsys):
    results, options = tmp_path / "figure9-laptop", Options("laptop", tmp_path / "outputs", 1, "cpu", False)
    shutil.copytree(RESULTS / "figure9-laptop", results)
    monkeypatch.setattr(drawing, "results_of", lambda target, scale: results)
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    drawing.draw_again("figure9", options)
    where = "claims that are judged otherwise than in paper_figures/results/figure9-laptop: "
    assert f"{where}none\n" in capsys.readouterr().out
    claims = json.loads((results / "claims.json").read_text())
    (more,) = [claim for claim in claims if claim["id"] == "more_is_better"]
    judged, more["verdict"] = more["verdict"], "of another time"
    (results / "claims.json").write_text(json.dumps(claims))
    drawing.draw_again("figure9", options)
    assert f"{where}1\n  more_is_better: here {judged}, published of another time\n" in capsys.readouterr().out
    monkeypatch.setattr(drawing, "hardware", lambda: {"cpu": "another"})
    drawing.draw_again("figure9", options)
    assert "; on another processor (another) numbers round otherwise" in capsys.readouterr().out
    (results / "claims.json").write_text("{")
    drawing.draw_again("figure9", options)
    assert "results/figure9-laptop, cannot be read (JSONDecodeError: " in capsys.readouterr().out


# -- what is folded --------------------------------------------------------------------------------------------------


def in_sight(text: str) -> str:
    """A page's text without what its reader has to open."""
    return re.sub(r"^<details>\n.*?^</details>\n", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("result", RESULTS_OF_ALL, ids=name_of)
def test_what_is_judged_is_in_sight_and_what_is_long_is_folded(result):
    text = page.page_of(result.target).read_text()
    assert text.startswith(in_sight(text).partition("\n## ")[0]), "the finding and the picture"
    begin, end = f"<!-- results {result.scale} -->", f"<!-- end {result.scale} -->"
    block = text[text.index(begin) : text.index(end)]
    seen = in_sight(block)
    assert result.picture.name in seen
    assert "\nJudged one by one, " in seen
    assert re.search(r"^\| ", seen.partition("### Claims")[0], re.MULTILINE), "its table"
    assert ("| claim | paper |" in seen) == (len(result.claims) <= 12)
    assert "repro.run" not in seen.partition("### Departures")[2]
    assert "| key |" not in seen


def test_pages_fold_with_room_for_markdown():
    """Without empty lines around, what is folded is shown as it is written."""
    for target in EVERY:
        text = page.page_of(target.name).read_text()
        fold = r"^<details>\n<summary>[^<\n]+</summary>\n\n(?!\n).+?\n\n</details>\n\n"
        folds = re.findall(fold, text, re.DOTALL | re.MULTILINE)
        assert len(folds) == text.count("<details>") == text.count("</details>") == text.count("<summary>"), target.name


def test_a_section_is_read_without_its_folds():
    assert "<details>" in page.page_of("figure6").read_text().partition("## Choices")[2].partition("## ")[0]
    choices = page.section("figure6", "Choices")
    assert choices.startswith("1. **")
    assert "<" not in re.sub(r"`[^`]*`", "", choices)


# -- the README, the terminal, and what is cited ---------------------------------------------------------------------


def test_the_readmes_table_is_that_of_what_is_published():
    text = README.read_text()
    assert with_table(text, EVERY) == text, "bring it up to date with `make report README=1`"
    assert f"]({VERDICTS_PICTURE.relative_to(ROOT)})" in text
    # Where Matplotlib draws otherwise, its numbers differ; squares and words do not.
    assert _squares_and_words(VERDICTS_PICTURE.read_text()) == _squares_and_words(drawn(EVERY).decode())


def test_a_square_tells_what_the_correction_for_many_claims_leaves():
    assert kind(HELD, HELD) == "held"
    assert kind(HELD, None) == "held, no p-value to correct"
    assert kind(DID_NOT_HOLD, UNDECIDED) == "did not hold, not after Holm's correction"
    assert kind(UNDECIDED, UNDECIDED) == "undecided"


def _squares_and_words(svg: str) -> tuple[Counter[str], list[str]]:
    squares = Counter(re.findall(r"<use [^>]*style=\"(fill: #\w+; stroke: #\w+)", svg))
    assert sum(squares.values()) > 300
    return squares, re.findall(r"<text [^>]*>([^<]+)</text>", svg)


def test_the_readmes_table_counts_verdicts_by_hand():
    row = next(line for line in readme_table(EVERY).splitlines() if line.startswith("| [figure2]"))
    claims = json.loads((RESULTS / "figure2-laptop" / "claims.json").read_text())
    assert {claim["verdict"] for claim in claims} == {"held"}
    assert f"| laptop | {len(claims)} held |" in row
    assert len({line.count("|") for line in readme_table(EVERY).splitlines()}) == 1


def test_a_readme_without_a_place_for_the_table_is_refused():
    with pytest.raises(ReproError, match="no block"):
        with_table("text", EVERY)


def test_damaged_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("repro.figures.published.RESULTS", tmp_path)
    (tmp_path / "figure1-laptop").mkdir()
    (tmp_path / "figure1-laptop" / "claims.json").write_text("[{}]")
    with pytest.raises(ReproError, match="figure1-laptop holds no verdicts that can be read"):
        published()


def test_the_list_fits_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("repro.tracking.progress._WIDTH_IN_A_FILE", 120)
    print_targets()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    figure1 = next(line for line in lines if line.startswith("figure1 "))
    claims = json.loads((RESULTS / "figure1-paper" / "claims.json").read_text())
    held = sum(claim["verdict"] == "held" and not claim["check"] for claim in claims)
    assert re.search(rf"paper +{held} ", figure1)
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in targets())


def test_what_is_cited_agrees():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    entries = (ROOT / "paper_figures" / "reference" / "sources.bib").read_text()
    titles = {re.sub(r"[{}]", "", title) for title in re.findall(r"title\s*=\s*\{(.*)\},?\n", entries)}
    assert {reference["title"] for reference in cited["references"]} == titles
    # The ancestor and its code, and the other reproduction.
    assert len(titles) == len(SOURCES) + 3
    assert re.findall(r"arXiv:([\d.]+)", entries) == [
        reference["url"].removeprefix("https://arxiv.org/abs/")
        for reference in cited["references"]
        if "url" in reference
    ]
