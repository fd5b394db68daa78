"""What the README and the pages in docs show must work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from repro import __main__ as list_of_commands
from repro.games import load
from repro.plans.planning import plan
from repro.policies import save_strategy, uniform

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
_NEED_A_TARGET = ("collect", "draw", "plan", "publish", "verify")


# The module of a figure is made in test_added_figure.py.
BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "SWEEPS = " not in block]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_code_blocks_run(block, tmp_path):
    strategy = tmp_path / "strategy.csv"
    game = load("leduc")
    save_strategy(game, uniform(game), strategy)
    block = block.replace("outputs/runs/<key>/sd_cfr/strategy.csv", str(strategy))
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_make_command_they_print_is_one():
    """With the variables that it is printed with: make refuses such as it does nothing with."""
    pages = [TEXT, *(page.read_text() for page in (ROOT / "paper_figures").glob("*.md"))]
    printed = {line.strip() for page in pages for line in re.findall(r"^ {4}(make [^\n#]*)", page, re.MULTILINE)}
    printed |= {line for page in pages for line in re.findall(r"`(make [^`\n<]*)`", page) if "TARGET=..." not in line}
    assert {"make figure1", "make test", "make figure3 SCALE=paper ON=slurm JOBS=20"} <= printed
    # What the page on figures adds, and nobody has yet.
    wrong = {line for line in printed if not _is_known(line)}
    assert wrong == {"make kuhn_gap"}


def _is_known(line: str) -> bool:
    """Whether make knows a printed command; one that names a kind alone takes a target."""
    words = shlex.split(line)[1:]
    named = ["TARGET=figure1"] if words[0] in _NEED_A_TARGET and len(words) == 1 else []
    command = ["make", "--dry-run", *words, *named]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    # A target that there is not is refused by a command of its own, which a dry run prints.
    return done.returncode == 0 and "make knows no target" not in done.stdout


@pytest.mark.parametrize("command", _NEED_A_TARGET)
def test_nothing_is_done_to_a_target_that_was_not_named(command):
    done = subprocess.run(["make", "--dry-run", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert f"TARGET is missing: make {command} TARGET=figure1" in done.stderr


def test_the_list_of_commands_has_those_that_they_name():
    done = subprocess.run([sys.executable, "-m", "repro"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    named = set(re.findall(r"python -m repro\.(\w+)", TEXT))
    assert {"run", "compare", "bench"} <= named <= listed
    assert all(line[13:].strip() for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("word", "hint"),
    [("run", "; the command is python -m repro.run; "), ("comparee", " (did you mean repro.compare?); ")],
)
def test_a_command_after_a_space_is_told_how_it_is_written(word, hint, capsys):
    assert list_of_commands.main([word]) == 2
    assert capsys.readouterr().err == f"error: python -m repro takes no {word!r}{hint}alone it lists the commands.\n"


def test_make_knows_the_variables_that_they_name():
    (known,) = re.findall(r"^VARIABLES := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {word for line in re.findall(r"\bmake [^`\n]*", TEXT) for word in re.findall(r"\b([A-Z_]+)=", line)}
    assert {"SCALE", "TARGET", "ON"} <= named
    assert named <= set(known.split()), named - set(known.split())


@pytest.mark.parametrize("line", re.findall(r"^ +python -m repro\.run (.*)$", TEXT, re.MULTILINE))
def test_every_run_they_show_composes(line):
    words = shlex.split(line.replace("=KEY", "=0123456789ab"), comments=True)
    config_dir = words[words.index("--config-dir") + 1] if "--config-dir" in words else None
    flags = ("-m", "--dry-run", "--cfg", "job", "--config-dir", config_dir, "--on", "slurm")
    overrides = [word for word in words if word not in flags]
    assert plan(overrides, "-m" in words, config_dir).runs


TAKES = re.compile(
    r"\b(seconds|minutes?|hours)\b(?! and disk| each$)|likewise|as long as it took|until it is stopped|runs as above"
)
"""But for what a plan lists, and what each of several tests takes."""
NOT_KNOWN = (
    "source .venv/bin/activate",  # Takes no time.
    "make bench ", "python -m repro.match hunl_pot ", "python -m repro.match fhp snapshot",
    "for part in 1 2 3 4; do sky ",  # Has not been run.
    "python -m repro.run -m game=leduc algorithm=sd_cfr_and_deep_cfr ",  # Written by repro.bench.scaling.
)  # fmt: skip
"""Commands of which nobody has said how long they take."""


def test_every_command_says_how_long_it_takes():
    text = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    commands = re.findall(r"^ {4}((?:python|make|mlflow|for|source) .*)$", text, re.MULTILINE)
    silent = [command for command in commands if not TAKES.search(command.partition(" #")[2])]
    assert len(commands) > 70
    assert [command for command in silent if not command.startswith(NOT_KNOWN)] == []
    assert all(any(command.startswith(known) for command in silent) for known in NOT_KNOWN)


UNTIMED_ON_PAGES = re.compile(r"out of (a laptop's )?reach|for whoever has the time|repro\.match (fhp5|hunl_pot) ")
"""Commands of figures' pages that nobody here has run to their end."""


def test_every_command_on_a_figures_page_says_how_long_it_takes():
    pages = (ROOT / "paper_figures").glob("*.md")
    commands = [c for page in pages for c in re.findall(r"^ {4}((?:python|make) .*)$", page.read_text(), re.MULTILINE)]
    assert len(commands) > 100
    assert [c for c in commands if not TAKES.search(c.partition(" #")[2]) and not UNTIMED_ON_PAGES.search(c)] == []


def test_every_file_they_link_to_exists():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page}: {link}"


# -- departures ------------------------------------------------------------------------------------------------------

DEPARTURES = (ROOT / "docs" / "departures.md").read_text()
ROWS = [row[2:-2].split(" | ") for row in re.findall(r"^\| (?!the source ).*$", DEPARTURES, re.MULTILINE)]
"""What a source says, what the suite does, of which kind, on which pages, and the tests."""


def sections(page: Path) -> dict[str, str]:
    """The text below each heading of a page, by the anchor that links to it."""
    _, *parts = re.split(r"^##+ (.+)\n", page.read_text(), flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in parts[::2]]
    return dict(zip(anchors, parts[1::2], strict=True))


_LINK = re.compile(r"\]\(([\w./-]+\.md)?#([\w-]+)\)")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("paper_figures/*.md")], ids=lambda p: p.stem
)
def test_links_to_headings_lead_to_some(page):
    for file, anchor in _LINK.findall(page.read_text()):
        assert anchor in sections(page.parent / file if file else page), f"{file}#{anchor}"


def test_every_departure_has_a_kind_and_names_tests_that_exist():
    assert {kind for _, _, kind, _, _ in ROWS} == {"fixed", "by choice", "open"}
    for *_, tests in ROWS:
        named = re.findall(r"`(tests/\w+\.py)::(\w+)`", tests)
        assert ", ".join(f"`{file}::{test}`" for file, test in named) == tests, tests
        for file, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"


def test_departures_link_to_every_pages_section_and_to_points_that_it_has():
    links = re.findall(r"^\[(.+)\]: \.\./(paper_figures/\w+\.md)#(\S+)$", DEPARTURES, re.MULTILINE)
    text = {name: sections(ROOT / file)[anchor] for name, file, anchor in links}
    cited = [found for *_, pages, _ in ROWS for found in re.findall(r"\[([^\]]+)\]([\d and]*)", pages)]
    assert {name for name, _ in cited} == text.keys()
    for name, points in cited:
        for point in re.findall(r"\d+", points):
            assert re.search(rf"^{point}\. ", text[name], re.MULTILINE), f"{name} has no point {point}"
    linked = {(file, anchor) for _, file, anchor in links}
    for page in (ROOT / "paper_figures").glob("*.md"):
        for anchor in sections(page):
            assert not anchor.startswith("choices") or (f"paper_figures/{page.name}", anchor) in linked, page.name
