"""The MLflow UI in a browser, as `make ui` serves it: the link opens, runs have names, and two compare."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repro import ui
from repro.figures.targets import Options
from repro.jobs.launching import Command
from repro.plans.planning import plan
from repro.shown import views
from repro.tracking.store import default_uri, open_store
from tests.browser_fixture import browser  # noqa: F401
from tests.helpers.cases import usually_first
from tests.test_views import swept  # noqa: F401

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.slow

_LONGEST_SECONDS = 120
"""Generous, because it only bounds how long a failure takes."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def server(browser: Chrome, swept: Path) -> Iterator[str]:  # noqa: F811
    """Address of the UI of a small store; nothing is started where there is no browser."""
    port = free_port()
    command = [sys.executable, "-m", "repro.ui", "--output", str(swept), "--port", str(port)]
    log = swept / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    until = time.monotonic() + _LONGEST_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            break
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
    address = f"http://127.0.0.1:{port}"
    close_assistant(browser, address)
    yield address
    process.terminate()
    process.wait(timeout=60)


@pytest.mark.parametrize("seconds", usually_first([0.0, 1.0]))
def test_ctrl_c_while_it_starts_ends_all_of_it(tmp_path, seconds):
    """Whatever the process is doing that looks up what there is to be seen."""
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", "repro.ui", "--output", str(tmp_path), "--port", str(free_port())]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Where these tests run in the background, SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not children.read_text():
        time.sleep(0.05)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=_LONGEST_SECONDS)
    assert (process.returncode, told) == (128 + signal.SIGINT, "interrupted.\n")
    until = time.monotonic() + _LONGEST_SECONDS
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        pytest.fail("a process is left")


def close_assistant(browser: Chrome, address: str) -> None:  # noqa: F811
    """Keep MLflow's assistant from opening at the first visit, where it leaves little room for charts."""
    browser.get(f"{address}/version")
    browser.execute_script("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
    browser.execute_script("localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')")


def text_of(browser: Chrome) -> str:  # noqa: F811
    return str(browser.execute_script("return document.body.innerText"))


def wait_for(browser: Chrome, *wanted: str) -> str:  # noqa: F811
    """The page's text, as soon as it has all that is wanted."""
    until = time.monotonic() + _LONGEST_SECONDS
    while lacking := [text for text in wanted if text not in text_of(browser)]:
        assert time.monotonic() < until, f"the page lacks {lacking}: {text_of(browser)}"
        time.sleep(0.2)
    return text_of(browser)


def wait_for_charts(browser: Chrome, charts: int, lines: int) -> None:  # noqa: F811
    """Wait until so many charts show so many curves each."""
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    script = (
        "return [...document.querySelectorAll('.js-plotly-plot')].filter("
        "p => (p.data || []).filter(d => d.x && d.x.length > 1).length >= arguments[0]).length"
    )
    WebDriverWait(browser, _LONGEST_SECONDS).until(lambda driver: driver.execute_script(script, lines) >= charts)


def link_of_the_command(swept: Path, server: str) -> str:  # noqa: F811
    experiment = open_store(default_uri(swept)).get_experiment_by_name("kuhn")
    (key,) = [tag.removeprefix(views.VIEW_TAG) for tag in experiment.tags if tag.startswith(views.VIEW_TAG)]
    return views.link(server, experiment, key)


@pytest.mark.exhaustive
def test_the_printed_link_opens_charts_of_two_algorithms_by_three_axes(browser, server, swept):  # noqa: F811
    browser.get(link_of_the_command(swept, server))
    text = wait_for(browser, "Runs in the game kuhn", "Group: 8 cfr iterations=8 snapshot_every=2", "matching runs")
    assert re.search(r"\b8\s+matching runs", text)
    assert "Group: 8 cfr_plus iterations=8 snapshot_every=2" in text
    assert "training cfr" not in text, "read-outs alone"
    wait_for_charts(browser, charts=3, lines=4)
    axes = browser.execute_script(
        "return [...document.querySelectorAll('.js-plotly-plot')].map(p => p.layout.xaxis.title.text || '')"
    )
    assert {"Step", "nodes_touched", "wall_seconds"} <= set(axes)


@pytest.mark.exhaustive
def test_two_runs_are_selected_in_the_table_and_compared(browser, server, swept):  # noqa: F811
    from selenium.webdriver.common.by import By  # noqa: PLC0415
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    experiment = re.search(r"/experiments/(\d+)/", link_of_the_command(swept, server))
    assert experiment
    search = "searchFilter=params.readout%20%21%3D%20%27training%27%20AND%20params.seed%20%3D%20%270%27"
    browser.get("about:blank")
    browser.get(f"{server}/#/experiments/{experiment[1]}/runs?workflowType=machine_learning&{search}")
    names = [f"{n} {name} s0 iterations={n} snapshot_every=2" for n in (4, 8) for name in ("cfr", "cfr_plus")]
    wait_for(browser, *names)
    for name in names[2:]:
        row = browser.find_element(By.XPATH, f"//a[normalize-space()='{name}']/ancestor::div[@role='row']")
        number = row.get_attribute("row-index")
        box = f".ag-row[row-index='{number}'] .ag-selection-checkbox input, .ag-row[row-index='{number}'] input"
        browser.find_element(By.CSS_SELECTOR, box).click()
    compare = "//button[normalize-space()='Compare']"
    WebDriverWait(browser, _LONGEST_SECONDS).until(lambda driver: driver.find_elements(By.XPATH, compare))[0].click()
    text = wait_for(browser, "Comparing 2 Runs", *names[2:])
    assert names[0] not in text


@pytest.mark.exhaustive
def test_means_are_charted_with_their_bounds_and_the_bounds_not_once_more(browser, server, swept):  # noqa: F811
    asked = ["game=leduc", "algorithm=cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2", "seed=range(2)"]
    runs = plan([*asked, f"output_dir={swept}"], multirun=True).runs
    command = Command(swept, None, None)
    assert command.do([runs]) == 0
    command.show(runs)
    command.show_means(runs)
    experiment = open_store(default_uri(swept)).get_experiment_by_name("leduc")
    (key,) = [tag.removeprefix(views.VIEW_TAG) for tag in experiment.tags if tag.endswith("-means")]
    browser.get("about:blank")
    browser.get(views.link(server, experiment, key))
    wait_for_charts(browser, charts=2, lines=3)
    wait_for(browser, "exploitability\n(3)")


@pytest.mark.exhaustive
def test_a_figure_s_link_opens_its_runs_and_its_means(browser, server, swept):  # noqa: F811
    """What `make ui TARGET=kuhn` prints: read-outs of all its sweeps, charted; and the run that has its picture."""
    made = [sys.executable, "-m", "repro.figure", "kuhn", "--scale", "smoke", "--output", str(swept)]
    subprocess.run(made, check=True, capture_output=True, timeout=600)
    client, options = open_store(default_uri(swept)), Options("smoke", swept, 1, "cpu", False)
    _, (link, of_means) = ui._looked_up("kuhn", options, int(server.rpartition(":")[2]))
    said, means = of_means.split(": ", 1)
    assert said == "means with their intervals"
    browser.get("about:blank")
    browser.get(link)
    text = wait_for(browser, "Group by: curve.kuhn", "Group: corrected", "Group: linear_cfr", "Group: sd_cfr")
    assert "iterations=8 snapshot_every=2" not in text, "runs of another command"
    wait_for_charts(browser, charts=3, lines=2)
    browser.get("about:blank")
    browser.get(means)
    wait_for(browser, "kuhn smoke, means")
    wait_for_charts(browser, charts=1, lines=2)
    drawn = client.search_runs(
        [client.get_experiment_by_name("kuhn").experiment_id], "attributes.run_name = 'kuhn smoke figure'"
    )
    assert {file.path for file in client.list_artifacts(drawn[0].info.run_id)} >= {"kuhn.png", "claims.json"}


@pytest.mark.skipif("REPRO_UI_LINK" not in os.environ, reason="REPRO_UI_LINK names no page of a UI that is running")
def test_the_readmes_picture_can_be_taken(browser):  # noqa: F811
    """`REPRO_UI_LINK=... pytest tests/test_ui.py -k picture`, with the link that `make ui TARGET=kuhn` prints."""
    link = os.environ["REPRO_UI_LINK"]
    close_assistant(browser, link.partition("/#/")[0])
    browser.get(link)
    wait_for(browser, "matching runs")
    wait_for_charts(browser, charts=3, lines=2)
    picture = Path(__file__).resolve().parents[1] / "docs" / "mlflow-ui.png"
    picture.parent.mkdir(exist_ok=True)
    assert browser.save_screenshot(str(picture))
    assert picture.stat().st_size < 150_000


@pytest.mark.exhaustive
def test_the_server_is_one_of_this_machine_alone_that_runs_no_jobs(tmp_path):
    command, environment = ui.server_command(default_uri(tmp_path), 5000)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--workers") + 1] == "1"
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
