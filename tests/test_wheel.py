"""The wheel: it has what code reads beside itself, and works where nothing else of the repository is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from repro.config.composed import CONF

ROOT = CONF.parent
PARTS = ("repro", "paper_figures", "conf")
LEFT_OUT = {".pdf", ".bib"}
"""What is not installed: pictures for print, and the list of sources, which no code reads."""
WORKS = """
import sys
import paper_figures, repro
from repro import figure, run
print(repro.__file__, *paper_figures.__path__)
assert run.main(["experiment=figure1", "scale=laptop", "--dry-run"]) == 0
sys.argv[1:] = ["list"]
sys.exit(figure.main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy of the tree, in which building leaves its traces; nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_it_has_every_configuration_page_and_result(wheel):
    tree = [path for part in PARTS for path in (ROOT / part).rglob("*") if path.is_file()]
    there = [path for path in tree if "__pycache__" not in path.parts and path.suffix not in LEFT_OUT]
    needed = {str(path.relative_to(ROOT)) for path in there}
    assert {"conf/config.yaml", "paper_figures/figure1.md", "repro/report/report.css"} <= needed
    assert needed <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.exhaustive
def test_it_works_where_nothing_else_of_the_repository_is(wheel, tmp_path):
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    done = subprocess.run(
        [sys.executable, "-c", WORKS], cwd=installed, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{installed}/repro/__init__.py {installed}/paper_figures"
    assert "1 training(s): 1 new" in done.stdout
    assert "SD-CFR Fig. 1a, 1b" in done.stdout
