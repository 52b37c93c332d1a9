"""Debian's Chromium for the tests of pages: one for a session, a fresh profile for each page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as NotInTime

PROGRAMS = ("chromium", "chromium-browser")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PATIENCE = 30_000
"""ms for anything that is awaited in a page: a busy machine is slow, and nothing here is slept."""
LOOKS = {"light": ("light", 1280, 900), "dark": ("dark", 1280, 900), "phone": ("light", 390, 844)}
"""Colour scheme, width and height by name."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; the test is skipped where there is none."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no chromium here (make system installs it as root on Debian)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page with what went wrong in it: errors on its console, exceptions, answers that failed."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.set_default_navigation_timeout(PATIENCE)
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        page.on("requestfailed", lambda asked: self._failed(asked.url, str(asked.failure)))

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.errors.append(f"{kind}: {text}")

    def _failed(self, url: str, why: str) -> None:
        if "ERR_ABORTED" not in why:  # an update that a newer one replaced, or events at the end of a page
            self.errors.append(f"failed: {url}: {why}")

    def open(self, path: str) -> Page:
        """Open a page of the dashboard and wait until it follows the daemon."""
        answer = self.page.goto(self.base + path)
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"
        self.page.wait_for_selector('#link[data-state="live"]')
        return self.page

    def look(self, name: str) -> None:
        """See the page in another colour scheme and size."""
        scheme, width, height = LOOKS[name]
        self.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        self.page.set_viewport_size({"width": width, "height": height})

    def serious(self, *rules: str) -> list[str]:
        """What axe-core finds that is serious or critical, as sentences; by these rules alone where some are named."""
        options = {"runOnly": list(rules)} if rules else None
        found: dict[str, Any] = Axe().run(self.page, options=options).response
        return [
            f"{one['id']}: {one['help']}: {node['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in {"serious", "critical"}
            for node in one["nodes"]
        ]

    def fits(self) -> bool:
        """Whether the page is no wider than it is seen, once what its scripts draw has followed a change of size."""
        fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        try:
            self.page.wait_for_function(fits)
        except NotInTime:
            return False
        return True


@contextmanager
def tab(browser: Browser, base: str) -> Iterator[Tab]:
    """Open a tab of its own profile; fails at the end where something went wrong in it."""
    context = browser.new_context(reduced_motion="reduce")
    try:
        made = Tab(context.new_page(), base)
        yield made
        if made.errors:
            pytest.fail("in the page: " + "; ".join(made.errors))
    finally:
        context.close()
