"""The pages without a browser: what they say, that they are strict and whole, and that nothing gets out of a name."""

from __future__ import annotations

import pytest

from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from ephemerd.ports.runtime import LogFile
from ephemerd.web.dashboard.render import POLICY
from tests.unit.app.fakes import T0, idle_report, key, until
from tests.unit.app.test_operator import listening
from tests.unit.web.dashboard.page import read

PAGES = ["/", "/timeline", "/jobs", "/decisions", "/forge", "/history", "/find?q=nothing"]


@pytest.mark.parametrize("path", PAGES)
async def test_an_idle_daemon_shows_whole_pages_that_say_what_to_do(desk, path):
    page = await desk.page(path)
    assert page.one("html").attributes["lang"] == "en"
    assert page.one(class_="skip").attributes["href"] == "#live"
    assert page.one("nav", aria_label="Pages").all("a")
    if path in {"/", "/decisions", "/history"}:
        assert any("empty" in one.attributes.get("class", "") for one in page)


@pytest.mark.parametrize("path", PAGES)
async def test_pages_let_nothing_foreign_in_and_are_not_kept(desk, path):
    answer = await desk.answer(path)
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/jobs", "/decisions", "/forge", "/history"])
async def test_an_update_is_the_main_part_alone(desk, path):
    answer = await desk.answer(path, headers={"hx-request": "true"})
    part = read(answer.text)
    assert not part.all("html")
    assert part.one("main").attributes["hx-get"] == path
    assert part.id("health").text == "ok"


async def test_files_are_kept_for_good_under_their_hash(desk):
    page = await desk.page("/")
    for link in page.all("link", rel="stylesheet") + page.all("script"):
        url = link.attributes.get("href") or link.attributes["src"]
        answer = await desk.answer(url)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        again = await desk.answer(url, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        stale = await desk.answer("/assets/0123/" + url.rpartition("/")[2])
        assert stale.headers["cache-control"] == "no-cache"
    assert (await desk.answer("/assets/x/../pages.py")).status_code == 404
    assert (await desk.answer("/assets/x/secret")).status_code == 404


async def test_now_tells_why_each_job_waits(desk, house):
    for number in range(1, 7):
        await house.report(number=number, name=f"build {number}")
    page = await desk.page("/")
    rows = {
        one.attributes["id"]: one.text
        for one in page.all("tr")
        if one.attributes.get("id", "").startswith("job-")
    }
    assert list(rows) == [f"job-{number}" for number in range(1, 7)]
    assert "max_concurrent" in rows["job-6"]
    assert page.id("pool-linux").text.startswith("linux")


async def test_now_shows_a_runner_with_its_state_and_job(desk, house):
    name = await listening(house)
    page = await desk.page("/")
    assert "listening" in page.id(f"runner-{name}").text
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    await house.report(ForgeStatus.IN_PROGRESS, runner_name=name)
    page = await desk.page("/")
    row = page.id(f"runner-{name}")
    assert "running" in row.text
    assert row.all("a", href=f"/jobs/{key()}")
    (cells,) = page.all("ul", class_="cells")
    assert len(cells.all("li")) == 4
    assert len(cells.all("li", class_="free")) == 3


async def test_a_job_that_no_slot_takes_for_28_hours_is_said_on_top(desk, house):
    for number in range(1, 6):
        await house.report(number=number)
    house.forge.answers["active_jobs"] = OSError("away")
    house.pass_time(28 * 3_600_000)
    page = await desk.page("/")
    assert page.id("health").text == "stuck"
    reasons = page.id("health-reasons").text
    assert "has waited 1680 min while a slot could serve it" in reasons
    assert page.id("health-reasons").all("code")


async def test_a_name_from_elsewhere_is_text(desk, house):
    await house.report(name='<script>alert(1)</script>"onload="x')
    for path in ("/", "/jobs", f"/jobs/{key()}"):
        answer = await desk.answer(path)
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)" in answer.text
    await desk.page("/")


async def test_a_destroyed_runner_tells_rule_verdict_probe_fence_and_times(desk, house):
    name = await listening(house)
    await house.report(ForgeStatus.COMPLETED, conclusion="cancelled")
    house.pass_time(31_000)
    await until(lambda: house.runners()[0].fence.accepted is not None)
    house.pass_time(6_000)
    await until(lambda: house.runners()[0].state is RunnerState.GONE)
    page = await desk.page(f"/runners/{name}")
    card = page.one("section", aria_labelledby="h-why")
    facts = dict(zip([one.text for one in card.all("dt")], [one.text for one in card.all("dd")], strict=True))
    assert facts["outcome"].startswith("reaped")
    assert facts["rule"].startswith("surplus: ")
    assert facts["verdict"].startswith("idle by ")
    assert "no worker" in facts["probe"]
    assert "deregistered" in facts["fence"] or "accepted" in facts["fence"]
    times = [int(one.attributes["data-at"]) for one in card.all("time")]
    assert len(times) >= 4
    assert {T0 + 31_000, T0 + 37_000} <= set(times)
    assert "gone" in facts
    assert page.one("svg", class_="lane").attributes["aria-label"].startswith(f"States of {name}: ")
    story = page.one("ol", class_="story").text
    assert "proven idle, so it goes" in story


async def test_a_vetoed_runner_has_no_ending_and_its_story_has_the_evidence(desk, house):
    name = await listening(house)
    await house.report(ForgeStatus.COMPLETED, conclusion="cancelled")
    house.runtime.answers["probe"] = idle_report(workers=1, detail="worker 7")
    house.pass_time(31_000)
    await until(lambda: house.store.made)
    page = await desk.page(f"/runners/{name}")
    assert not page.all("section", aria_labelledby="h-why")
    story = page.one("ol", class_="story")
    (decision,) = story.all("li", class_="decision")
    assert "vetoed, so it stays" in decision.text
    assert "worker 7" in decision.text
    listed = await desk.page("/decisions")
    assert "worker 7" in listed.one("table").text


async def test_a_job_tells_its_story_with_its_runners(desk, house):
    name = await listening(house)
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.report(ForgeStatus.IN_PROGRESS, runner_name=name)
    page = await desk.page(f"/jobs/{key()}")
    assert page.one("h1").text.endswith("running")
    story = page.one("ol", class_="story")
    assert story.all("a", href=f"/runners/{name}")
    assert len(story.all("li", class_="event")) > 3
    assert "Logs of its runner" in page.id("h-log").text
    assert page.id("log").attributes["data-log"] == f"/api/v1/runners/{name}/logs"


async def test_logs_come_with_the_page_and_hold_no_secret(desk, house):
    name = await listening(house)
    house.runtime.log_files = lambda runner: _soon([LogFile("output", 20)])
    house.runtime.read_log = lambda runner, file, start, most: _soon(b"Listening <b>\nhush hush\n")
    page = await desk.page(f"/runners/{name}")
    assert page.id("log-text").text == "Listening <b> [hidden] [hidden]"
    assert page.id("log-name").one("option").attributes["value"] == "output"


async def _soon(value):
    return value


async def test_a_waiting_job_says_why(desk, house):
    for number in range(1, 7):
        await house.report(number=number)
    page = await desk.page(f"/jobs/{key(6)}")
    assert "max_concurrent" in page.one("section", aria_labelledby="h-why").text


@pytest.mark.parametrize("path", ["/runners/eph-nobody-1", "/jobs/github/acme/app/77", "/jobs/x"])
async def test_an_unknown_one_is_a_page_that_says_so(desk, house, path):
    await house.report()
    page = await desk.page(path, status=404)
    assert page.one("h1").text.startswith("No such ")


async def test_an_unknown_one_comes_with_what_was_perhaps_meant(desk, house):
    await house.report(number=77)
    page = await desk.page("/jobs/github/acme/app/7", status=404)
    assert page.one("main").all("a", href="/jobs/github/acme/app/77")


async def test_find_leads_to_the_one_that_is_meant(desk, house):
    name = await listening(house)
    for text, url in ((name, f"/runners/{name}"), (str(key()), f"/jobs/{key()}")):
        answer = await desk.answer("/find", params={"q": text})
        assert (answer.status_code, answer.headers["location"]) == (303, url)
    page = await desk.page("/find?q=zzz")
    assert "No runner or job resembles" in page.text


async def test_decisions_are_filtered_and_filters_stay_chosen(desk, house):
    name = await listening(house)
    await house.report(ForgeStatus.COMPLETED, conclusion="cancelled")
    house.runtime.answers["probe"] = idle_report(workers=1)
    house.pass_time(31_000)
    await until(lambda: house.store.made)
    page = await desk.page("/decisions?outcome=vetoed&verdict=busy")
    assert page.one("table").all("a", href=f"/runners/{name}")
    chosen = {one.text for one in page.all("option") if "selected" in one.attributes}
    assert chosen == {"vetoed", "busy"}
    page = await desk.page("/decisions?outcome=reaped")
    assert not page.all("table")
    assert "No decision is like that" in page.text
    assert "No decision is like that" not in (await desk.page("/decisions?outcome=rubbish&before=x")).text


async def test_jobs_are_listed_by_status_and_paged(desk, house):
    for number in range(1, 104):
        await house.report(number=number)
    page = await desk.page("/jobs?status=queued")
    assert len(page.one("tbody").all("tr")) == 100
    older = page.one("a", rel="next").attributes["href"]
    page = await desk.page(older)
    assert len(page.one("tbody").all("tr")) == 3
    assert "hx-get" not in page.one("main").attributes
    assert not (await desk.page("/jobs?status=done")).all("tbody")


async def test_the_forge_page_tells_budget_latency_failures_and_deliveries(desk, house):
    request = "forge_request_duration_seconds"
    where = {"forge": "github", "endpoint": "register"}
    desk.figures = [
        (f"{request}_bucket", {**where, "le": "0.1"}, 8.0),
        (f"{request}_bucket", {**where, "le": "0.5"}, 10.0),
        (f"{request}_bucket", {**where, "le": "+Inf"}, 10.0),
        (f"{request}_sum", where, 1.5),
        ("forge_requests_total", {**where, "status": "201"}, 8.0),
        ("forge_requests_total", {**where, "status": "502"}, 2.0),
        ("webhooks_total", {"forge": "github", "event": "workflow_job", "result": "stored"}, 4.0),
        ("webhooks_total", {"forge": "github", "event": "ping", "result": "unused"}, 0.0),
    ]
    page = await desk.page("/forge")
    text = page.one("main").text
    assert "4990 of 5000 left" in text
    assert "2 × 502" in text
    assert "150" not in text
    calls = page.one("div", aria_label="Calls to github").one("tbody").text
    assert calls.startswith("register 10 0.1 s")
    assert "workflow_job stored 4" in page.one("div", aria_label="Deliveries of github").text
    assert "ping" not in text


async def test_history_draws_what_was_done(desk, house):
    name = await listening(house)
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.report(ForgeStatus.IN_PROGRESS, runner_name=name)
    house.pass_time(60_000)
    await house.report(ForgeStatus.COMPLETED, runner_name=name, conclusion="success")
    page = await desk.page("/history?window=1%20h")
    charts = page.all("svg", class_="chart")
    assert [one.attributes["aria-label"].partition(":")[0].partition(",")[0] for one in charts] == [
        "Jobs ended",
        "Queue wait",
        "Duration",
        "Idle runners let go",
    ]
    assert charts[0].all("rect", class_="c-good")
    assert page.one("a", aria_current="true").text == "1 h"
    assert "1 min" in page.one("section", aria_label="Figures of the last 1 h").text


async def test_the_timelines_data_are_for_its_script(desk, house):
    name = await listening(house)
    data = (await desk.answer("/timeline.json")).json()
    assert [lane[0] for lane in data["lanes"]] == [name]
    again = await desk.answer("/timeline.json", params={"after": data["revision"], "life": data["life"]})
    assert again.json()["lanes"] == []
    assert (await desk.answer("/timeline.json", params={"after": "x", "life": "y"})).json()["lanes"]
    page = await desk.page("/timeline")
    assert page.one("details", class_="same").all("a", href=f"/runners/{name}")
