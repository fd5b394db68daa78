"""A headless Chromium for tests of pages; they are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser with a window of 1400 x 1000, one for all tests of a module; downloads nothing of its own accord."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium, or no chromedriver, is installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    # Without a sandbox if root, which is what containers run tests as; without the small shared memory that they have.
    flags = ["--headless=new", "--window-size=1400,1000", "--disable-dev-shm-usage", "--disable-background-networking"]
    flags += [f"--user-data-dir={tmp_path_factory.mktemp('profile')}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()
