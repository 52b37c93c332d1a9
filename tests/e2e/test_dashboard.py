"""The dashboard in a browser, before a daemon that runs real processes for a look-alike forge.

Nothing is slept: each change is awaited in the page, which must show it without being loaded again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import psutil
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import LOOKS, PATIENCE, Tab, chromium, tab
from tests.e2e.serving import CONFIG, Site, free_port, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
QUICK = (
    CONFIG.replace("max_concurrent = 4", 'max_concurrent = 4\nsurplus_grace = "500ms"')
    + '\n[policy]\nnominate_every = "500ms"\nsettle = "500ms"\n'
)
STALLING = (
    CONFIG.replace("max_concurrent = 4", "max_concurrent = 1")
    + '\n[policy]\nstuck_after = "2s"\nprovision_limit = "10m"\n'
)
PAGES = ("/", "/timeline", "/jobs", "/decisions", "/forge", "/history")


class Served(Site):
    """A site whose daemon serves the dashboard on loopback. `destroyed` is a runner that was reaped."""

    destroyed = ""

    def start(self) -> Any:
        self.dashboard = free_port()
        self.base = f"http://127.0.0.1:{self.dashboard}"
        daemon = self.run(
            *("serve", "--config", str(self.config), "--open-api", f"127.0.0.1:{self.dashboard}"), out="serve"
        )
        until(lambda: daemon.poll() is not None or self.ready())
        assert daemon.poll() is None, self.log()
        return daemon

    def admin(self, path: str, **body: Any) -> Any:
        answer = self.web.post(f"{self.forge}/_admin{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def runners(self, state: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api(f"api/v1/runners?state={state}")["items"]
        return found

    def reaped(self, beside: int = 0) -> str:
        """Let a runner be made for a job that is then cancelled, and others for jobs `beside` it; return its name
        when it is gone."""
        known = {one["runner"] for one in self.decisions("reaped")}
        self.admin("/assignment", paused=True)
        job, *_ = self.queue(1 + beside, seconds=0.2)
        until(lambda: len(self.runners("listening")) > beside)
        self.admin(f"/jobs/{job}/cancel")
        self.admin("/assignment", paused=False)
        fresh = until(lambda: {one["runner"] for one in self.decisions("reaped")} - known)
        name = str(fresh.pop())
        until(lambda: any(one["id"] == name for one in self.runners("gone")))
        return name

    def decisions(self, outcome: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api(f"api/v1/decisions?outcome={outcome}")["items"]
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("dashboard"), QUICK)
    try:
        made.destroyed = made.reaped(beside=1)
        yield made
    finally:
        made.close()
        end_runners(made.folder)


@pytest.fixture
def destroyed(site: Served) -> str:
    return site.destroyed


@pytest.fixture
def seen(browser: Browser, site: Served) -> Iterator[Tab]:
    with tab(browser, site.base) as made:
        yield made


def end_runners(folder: Path) -> None:
    """End what a daemon that is gone has left running, as it does on purpose."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.Error):
                for one in [*process.children(recursive=True), process]:
                    one.kill()


def check(seen: Tab, folder: Path, name: str, *, contrast: bool = False) -> None:
    """See a page in every look: whole, readable to all, no wider than the screen, and kept as a picture. With
    `contrast` the dark one's colours are measured too: pages share them."""
    page = seen.page
    for look in LOOKS:
        seen.look(look)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.get_by_role("navigation", name="Pages", exact=True)).to_be_visible()
        expect(page.get_by_role("main")).to_be_visible()
        assert seen.fits(), (name, look)
        if look == "light":
            assert seen.serious() == [], (name, look)
        elif look == "dark" and contrast:
            assert seen.serious("color-contrast") == [], (name, look)
        picture = page.screenshot(path=folder / f"{name}-{look}.png")
        assert len(picture) > 5_000


def test_each_page_in_light_dark_and_on_a_phone(seen, destroyed, tmp_path):
    for path in PAGES:
        seen.open(path)
        check(seen, tmp_path, path.strip("/") or "now", contrast=path in {"/", "/timeline"})


def test_a_destroyed_runner_tells_why(seen, site, destroyed, tmp_path):
    page = seen.open(f"/runners/{destroyed}")
    card = page.get_by_role("region", name="Why it was ended")
    for fact in ("reaped", "surplus", "idle", "probe", "fence", "gone"):
        expect(card).to_contain_text(fact)
    assert card.locator("time").count() >= 4
    expect(card).to_contain_text(re.compile(r"\d\d:\d\d:\d\d\.\d\d\d"))
    check(seen, tmp_path, "runner", contrast=True)


def test_a_job_tells_its_story(seen, site, tmp_path):
    job = site.api("api/v1/jobs?status=done")["items"][0]
    page = seen.open(f"/jobs/{quote(job['id'])}")
    expect(page.locator("h1")).to_contain_text("success")
    expect(page.locator(".story")).to_contain_text("Running job")
    check(seen, tmp_path, "job")


def test_a_page_follows_what_happens_without_being_loaded_again(seen, site):
    page = seen.open("/")
    page.evaluate("window.loaded = 'once'")
    (job,) = site.queue(1, seconds=2.0)
    row = page.locator("#h-ended + ul li", has_text=f"app/{job}")
    expect(page.locator("main")).to_contain_text(f"app/{job}", timeout=PATIENCE)
    expect(row).to_contain_text("success", timeout=PATIENCE)
    assert page.evaluate("window.loaded") == "once"


def test_an_open_detail_and_the_focus_stay_while_the_page_changes(seen, site, destroyed):
    page = seen.open("/decisions")
    detail = page.locator("details").first
    detail.locator("summary").click()
    detail.locator("summary").focus()
    name = site.reaped()
    expect(page.locator("tbody")).to_contain_text(name.split("-", 2)[2], timeout=PATIENCE)
    opened = page.locator("details[open]")
    expect(opened).to_have_count(1)
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_kill_is_asked_for_vetoed_while_busy_and_works_by_keyboard(seen, site):
    page = seen.open("/")
    site.queue(1, seconds=60.0)
    row = page.locator("#h-runners ~ .scroll tbody tr", has_text="running")
    expect(row).to_have_count(1, timeout=PATIENCE)
    row.get_by_role("link", name=re.compile("^Kill")).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert seen.serious() == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(row.get_by_role("link", name=re.compile("^Kill"))).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("a test of the gate")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("vetoed", timeout=PATIENCE)
    expect(page.locator("#said")).to_contain_text("vetoed")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(row).to_contain_text("running")
    row.get_by_role("link", name=re.compile("^Kill")).click()
    page.get_by_label(re.compile("^Reason")).fill("it has to go")
    page.get_by_role("checkbox", name=re.compile("even if busy")).check()
    page.get_by_role("button", name="Kill").click()
    expect(dialog).to_contain_text(re.compile("accepted|pending"), timeout=PATIENCE)
    expect(row).to_have_count(0, timeout=PATIENCE)


def test_cordon_and_uncordon_a_pool(seen, site):
    page = seen.open("/")
    pool = page.locator("#pool-linux")
    pool.get_by_role("link", name=re.compile("^Cordon")).click()
    page.get_by_label(re.compile("^Reason")).fill("the disk is full")
    page.get_by_role("button", name="Cordon").click()
    expect(pool).to_contain_text("the disk is full", timeout=PATIENCE)
    page.get_by_role("dialog").get_by_role("link", name="Close").click()
    pool.get_by_role("link", name=re.compile("^Uncordon")).click()
    page.get_by_role("button", name="Uncordon").click()
    expect(pool).not_to_contain_text("cordoned", timeout=PATIENCE)


def test_the_timeline_is_drawn_followed_and_walked_by_keyboard(seen, site, destroyed):
    page = seen.open("/timeline")
    page.wait_for_selector("#tl[data-ready]")
    painted = page.evaluate(
        "() => { const c = document.getElementById('tl-canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; }"
    )
    assert painted > 1_000
    before = int(page.locator("#tl-count").inner_text().split()[0])
    site.queue(1)
    expect(page.locator("#tl-count")).to_have_text(f"{before + 1} runners", timeout=PATIENCE)
    page.locator("#tl-scroll").focus()
    for _ in range(before + 1):
        page.keyboard.press("ArrowDown")
        if destroyed.split("-", 2)[2] in page.locator("#tl-said").inner_text():
            break
    said = []
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        said.append(page.locator("#tl-said").inner_text())
    text = " ".join(said)
    for word in (
        "starting",
        "listening",
        "nominated as surplus",
        "fence accepted",
        "reaped",
        "probe said idle",
    ):
        assert word in text
    expect(page.locator("#tl-tip")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runners/{destroyed}")


def test_a_log_grows_while_it_is_read(seen, site):
    page = seen.open("/")
    site.queue(1, seconds=3.0)
    row = page.locator("#h-runners ~ .scroll tbody tr", has_text="running")
    expect(row).to_have_count(1, timeout=PATIENCE)
    row.locator("th a").click()
    page.wait_for_selector("#log-text")
    expect(page.locator("#log-text")).to_contain_text("Running job", timeout=PATIENCE)
    expect(page.locator("#log-text")).to_contain_text("completed with result", timeout=PATIENCE)
    expect(page.locator("#log-state")).to_have_text("ended", timeout=PATIENCE)
    expect(page.locator("h1")).to_contain_text("gone", timeout=PATIENCE)


def test_the_theme_is_chosen_and_stays(seen, site):
    page = seen.open("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    seen.look("light")
    light = page.evaluate(paper)
    page.get_by_role("button", name=re.compile("^Light, dark")).click()
    dark = page.evaluate(paper)
    assert dark != light
    seen.open("/history")
    assert page.evaluate(paper) == dark


def test_a_held_slot_that_nothing_accounts_for_is_said_on_the_page(browser, tmp_path):
    """`197-stuck-slot-28h`, minutes scaled to seconds: a runner that boots for ever holds the only slot."""
    site = Served(tmp_path, STALLING)
    try:
        listener = tmp_path / "application" / "bin" / "Runner.Listener"
        listener.write_text("#!/bin/sh\nexec sleep 120\n")
        with tab(browser, site.base) as seen:
            page = seen.open("/")
            expect(page.locator("#health")).to_have_text("ok")
            page.evaluate("window.loaded = 'once'")
            (job,) = site.queue(1)
            expect(page.locator("#health")).to_have_text("stuck", timeout=PATIENCE)
            reason = page.locator("#health-reasons")
            expect(reason).to_contain_text(f"Job github/acme/app/{job} has waited")
            expect(reason).to_contain_text("while a slot could serve it and nothing moved")
            expect(page.locator("#said")).to_have_text("Health is stuck")
            assert page.evaluate("window.loaded") == "once"
            health = httpx2.get(f"{site.base}/healthz", timeout=10)
            assert health.status_code == 503
    finally:
        site.close()
        end_runners(tmp_path)
