"""Make the pictures of the dashboard for the documentation: a real demo, seen in a real browser.

    .venv/bin/python scripts/screenshots.py [--folder docs/pictures] [--chromium /usr/bin/chromium]

Plays the demo's act and a few bursts with real processes, and looks at the pages meanwhile. Needs Chromium. The
pictures are WebP, made by the browser itself, small enough to be kept with the source.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from ephemerd.testing.demo.act import Act
from ephemerd.testing.demo.bursts import Bursts
from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.driver import keep_looking
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoOptions
from ephemerd.testing.demo.stage import Stage

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
SMALL = """async png => {
    const image = new Image();
    image.src = "data:image/png;base64," + png;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.86).split(",")[1];
}"""


class Camera:
    """Takes pictures of one dashboard."""

    def __init__(self, browser: Browser, base: str, folder: Path) -> None:
        self._browser = browser
        self._base = base
        self._folder = folder

    async def take(
        self, path: str, name: str, *, scheme: str = "light", width: int = 1280, tall: int = 800
    ) -> None:
        context = await self._browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": tall},
            reduced_motion="reduce",
        )
        try:
            page = await context.new_page()
            await page.goto(self._base + path)
            await page.wait_for_selector('#link[data-state="live"]')
            if path == "/timeline":
                await page.wait_for_selector("#tl[data-ready]")
                await page.get_by_role("button", name="all", exact=True).click()
                await page.locator("#tl-scroll").evaluate("box => { box.scrollTop = box.scrollHeight; }")
                await page.wait_for_timeout(600)  # it draws twice a second while it follows
            await page.evaluate("document.fonts.ready")
            png = await page.screenshot()
            blank = await context.new_page()
            small = await blank.evaluate(SMALL, base64.b64encode(png).decode())
            target = self._folder / f"{name}.webp"
            target.write_bytes(base64.b64decode(small))
            sys.stderr.write(f"{target}: {target.stat().st_size / 1024:.0f} KiB\n")
        finally:
            await context.close()


async def make(folder: Path, chromium: str) -> None:
    """Play, and take the pictures at the moments that show most."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ephemerd-pictures-") as scratch:
        options = DemoOptions(jobs=24, burst=6, seed=3, port=0, headless=True, folder=Path(scratch))
        narrator = Narrator(to_stderr=True)
        async with Stage(options) as stage, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, headless=True, args=ARGUMENTS
            )
            camera = Camera(browser, f"http://127.0.0.1:{stage.open_port}", folder)
            looking = asyncio.create_task(keep_looking(stage))
            act, bursts, over = Act(stage, narrator), Bursts(stage, narrator), asyncio.Event()
            try:
                await act.play_to_the_veto()
                async with asyncio.TaskGroup() as group:
                    group.create_task(act.play_to_the_end()).add_done_callback(lambda _: over.set())
                    playing = group.create_task(bursts.play(over))
                    await over.wait()
                    await until(lambda: busy(stage), 60)
                    await camera.take("/", "dashboard-now")
                    await camera.take("/timeline", "dashboard-timeline", scheme="dark")
                    await camera.take(f"/runners/{act.spare}", "dashboard-runner", tall=900)
                    with contextlib.suppress(asyncio.CancelledError):
                        await playing
            finally:
                looking.cancel()
                await browser.close()


async def busy(stage: Stage) -> bool:
    """Whether there is something to see: jobs that run, and others that wait or are about to be run."""
    status = await stage.daemon.get("/api/v1/status")
    return bool(status["jobs"]["running"] >= 3)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    asyncio.run(make(options.folder, options.chromium))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
