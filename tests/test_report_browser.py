"""The report in a browser, opened from the disk: its filter, its matrix, its curves, and that it asks no network."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repro.figures.published import RESULTS, published
from repro.report.__main__ import write

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.slow

FEW = ("figure6", "figure2", "fhp_fits")
"""Targets that make the page quickly; what it does is the same with all."""


@pytest.fixture(scope="module")
def page(browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Chrome:
    with pytest.MonkeyPatch.context() as patch:
        few = [target for target in published() if target.name in FEW]
        patch.setattr("repro.figures.published.published", lambda: few)
        file = write(tmp_path_factory.mktemp("report"))
    browser.get(file.as_uri())
    return browser


@pytest.fixture(autouse=True)
def _as_opened(page: Chrome):
    page.refresh()


def all_of(page: Chrome, selector: str) -> list[WebElement]:
    return page.find_elements("css selector", selector)


def one(page: Chrome, selector: str) -> WebElement:
    return page.find_element("css selector", selector)


def waited(page: Chrome, script: str) -> Any:
    """What a script answers as soon as it is true."""
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    return WebDriverWait(page, 20).until(lambda browser: browser.execute_script(f"return {script}"))


def shown(page: Chrome, selector: str) -> list[str]:
    """The names (`id`) of what can be seen."""
    return [str(element.get_attribute("id")) for element in all_of(page, selector) if element.is_displayed()]


def plotted(page: Chrome) -> str:
    """The box of figure 6's curves, drawn, as a script names it."""
    page.execute_script("document.getElementById('curves-figure6-paper').scrollIntoView()")
    plot = "document.querySelector('#curves-figure6-paper .plot')"
    waited(page, f"({plot}.data || []).length")
    return plot


@pytest.mark.exhaustive
def test_it_asks_no_network_and_tells_no_errors(page):
    plotted(page)
    assert (
        page.execute_script(
            "return performance.getEntriesByType('resource').filter(e => !/^(data|blob):/.test(e.name))"
        )
        == []
    )
    assert [entry["message"] for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    # Nothing is too wide for the window.
    assert page.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_words_hide_what_does_not_match(page):
    assert set(shown(page, "article.target")) == set(FEW)
    every = len(shown(page, "tr.claim"))
    one(page, "#filter").send_keys("d2cfr exception 110")
    assert shown(page, "article.target") == ["figure6"]
    found = shown(page, "tr.claim")
    assert 0 < len(found) < every
    assert all("110" in one(page, f"#{claim}").text for claim in found)
    assert len(all_of(page, ".matrix a.cell:not(.dim)")) - len(
        all_of(page, ".matrix tr[hidden] a.cell:not(.dim)")
    ) == len(found)
    assert one(page, "#matching").text.startswith(f"{len(found)} of {every} claims")
    one(page, "#filter").send_keys(" no such word")
    assert shown(page, "article.target") == []
    assert one(page, "#nothing").is_displayed()


def test_a_target_that_matches_is_shown_whole(page):
    one(page, "#filter").send_keys("5-FHP")
    assert shown(page, "article.target") == ["figure2"]
    assert len(shown(page, "#figure2 tr.claim")) == len(all_of(page, "#figure2 tr.claim"))


def test_what_only_a_finding_says_shows_its_target(page):
    one(page, "#filter").send_keys("does not say with which values")
    assert shown(page, "article.target") == ["figure6"]
    assert len(shown(page, "tr.claim")) == len(all_of(page, "#figure6 tr.claim"))


def test_verdicts_hide_others(page):
    one(page, ".chip[data-verdict=not]").click()
    rows = [row for row in all_of(page, "tr.claim") if row.is_displayed()]
    assert {row.get_attribute("data-verdict") for row in rows} == {"not"}
    # Targets with such a claim stay, and no others.
    refuted = {
        article.get_attribute("id") for article in all_of(page, 'article.target:has(tr.claim[data-verdict="not"])')
    }
    assert "figure6" in refuted
    assert set(shown(page, "article.target")) == refuted < set(FEW)


def test_a_cell_tells_its_claim_and_leads_to_it(page):
    from selenium.webdriver import ActionChains  # noqa: PLC0415

    cell = one(page, ".matrix tr[data-result=figure6-paper] a.cell:nth-child(2)")
    ActionChains(page).move_to_element(cell).perform()
    tip = one(page, "#tip").text
    assert tip.startswith("did not hold: D2CFR reaches a lower exploitability than SD-CFR")
    assert "ours: 23.8 [4.66, 42.8] mA/g" in tip
    cell.click()
    assert page.current_url.endswith("#figure6-paper-2")
    box = page.execute_script("return document.querySelector(':target').getBoundingClientRect().toJSON()")
    assert 0 <= box["top"] < page.execute_script("return innerHeight")


def test_the_axis_can_be_switched(page):
    plot = plotted(page)
    last = f"Math.max(...{plot}.data.flatMap(trace => trace.x))"
    assert page.execute_script(f"return {last}") == 1000
    one(page, "#curves-figure6-paper input[value=nodes_touched]").click()
    waited(page, f"{plot}.layout.xaxis.title.text == 'nodes touched'")
    assert page.execute_script(f"return {last}") > 1e6
    one(page, "#curves-figure6-paper input[value=wall_seconds]").click()
    waited(page, f"{plot}.layout.xaxis.title.text == 'seconds'")


def test_an_algorithm_is_hidden_by_the_legend(page):
    plot = plotted(page)
    seen = f"{plot}.data.filter(t => t.visible !== 'legendonly').map(t => t.name)"
    assert set(page.execute_script(f"return {seen}")) == {"D2CFR", "Deep CFR", "SD-CFR"}
    toggles = all_of(page, "#curves-figure6-paper .legendtoggle")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", toggles[0])
    toggles[0].click()
    waited(page, f"new Set({seen}).size == 2")
    # It stays hidden when something else is changed.
    one(page, "#curves-figure6-paper input[value=nodes_touched]").click()
    waited(page, f"{plot}.layout.xaxis.title.text == 'nodes touched'")
    one(page, "#curves-figure6-paper .seed").click()
    assert set(page.execute_script(f"return {seen}")) == {"Deep CFR", "SD-CFR"}


def test_a_seed_is_hidden_and_the_mean_is_of_the_others(page):
    plot = plotted(page)
    mean = f"{plot}.data.filter(t => t.name == 'D2CFR').at(-1).y.at(-1)"
    of_seeds = f"{plot}.data.filter(t => t.name == 'D2CFR').slice(1, -1).map(t => t.y.at(-1))"
    assert len(page.execute_script(f"return {of_seeds}")) == 5
    one(page, "#curves-figure6-paper .seed").click()
    waited(page, f"{plot}.data.filter(t => t.name == 'D2CFR').length == 6")
    left = page.execute_script(f"return {of_seeds}")
    assert page.execute_script(f"return {mean}") == pytest.approx(sum(left) / 4)


@pytest.mark.exhaustive
def test_links_lead_into_the_checkout(page):
    links = [str(link.get_attribute("href")) for link in all_of(page, "a[href]")]
    files = {Path(link.removeprefix("file://")) for link in links if link.startswith("file://") and "#" not in link}
    assert RESULTS / "figure6-paper" / "data.csv.gz" in files
    assert all(file.exists() for file in files)
    places = {link.partition("#")[2] for link in links if link.startswith(page.current_url.partition("#")[0] + "#")}
    there = {element.get_attribute("id") for element in all_of(page, "[id]")}
    # Targets that this page was made without are not on it.
    assert {place for place in places if place.startswith(FEW)} <= there


@pytest.mark.exhaustive
def test_it_can_be_printed_on_a4(page):
    printed = page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF")
    sheets = re.findall(rb"/Type\s*/Page\b.*?/MediaBox\s*\[([^]]*)\]", pdf, re.DOTALL)
    assert len(sheets) > len(FEW), "one for the matrix, at least"
    assert {tuple(round(float(edge)) for edge in sheet.split()) for sheet in sheets} == {(0, 0, 595, 842)}, "A4"
