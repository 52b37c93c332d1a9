"""The operations that read: each answers with a view of the queries, or with a problem."""

from __future__ import annotations

from starlette.responses import Response

from ephemerd.app.queries import BadCursor, Queries
from ephemerd.app.records import MOST
from ephemerd.domain.job import JobStatus
from ephemerd.domain.runner import Rule, RunnerState
from ephemerd.domain.verdict import Verdict, Via
from ephemerd.ports.views import (
    DecisionView,
    HostView,
    JobView,
    JournalView,
    Page,
    PoolView,
    QuarantineView,
    RunnerView,
    SegmentView,
    StatusView,
    StoryView,
)
from ephemerd.web.answers import json_answer, problem
from ephemerd.web.operations import PREFIX, Choice, Flag, Given, Number, Operation, Param, unknown

LIMIT = Number("limit", "Most entries of the page.", default=100, least=1, most=MOST)
AFTER = Number("after", "The `next` of the page before; none: from the beginning.")
AFTER_NAME = Param("after", "The `next` of the page before; none: from the beginning.")
RUNNER = Param("id", "The runner's name.", path=True, example="eph-k3v9-x1-12")
JOB = Param("id", "The job: forge/owner/repository/number.", path=True, whole_rest=True)

STATES = tuple(state.value for state in RunnerState)
STATUSES = tuple(status.value for status in JobStatus)
OUTCOMES = ("reaped", "vetoed", "escaped")


def view_operations(queries: Queries) -> list[Operation]:
    """Declare the operations that read. What the store has to be asked for may be answered 503."""
    views = Views(queries)
    return [*_now(views), *_runners(views), *_jobs(views), *_history(views)]


def _now(views: Views) -> list[Operation]:
    return [
        Operation(
            "status", "GET", f"{PREFIX}/status", "The daemon at this moment.", views.status, {200: StatusView}
        ),
        Operation(
            *("pools", "GET", f"{PREFIX}/pools", "Pools, in the order of the configuration."),
            views.pools,
            {200: Page[PoolView]},
            params=(AFTER_NAME, LIMIT),
            problems=(409,),
            text="409: the list has no such cursor any more; begin again.",
        ),
        Operation(
            *("hosts", "GET", f"{PREFIX}/hosts", "Hosts and their slots, in the order of the configuration."),
            views.hosts,
            {200: Page[HostView]},
            params=(AFTER_NAME, LIMIT),
            problems=(409,),
            text="409: the list has no such cursor any more; begin again.",
        ),
    ]


def _runners(views: Views) -> list[Operation]:
    return [
        Operation(
            *("runners", "GET", f"{PREFIX}/runners", "Runners, newest first."),
            views.runners,
            {200: Page[RunnerView]},
            params=(
                AFTER,
                LIMIT,
                Param("pool", "Only of this pool."),
                Param("host", "Only on this host."),
                Choice("state", "Only in this state.", words=STATES),
            ),
        ),
        Operation(
            *("runner", "GET", f"{PREFIX}/runners/{{id}}", "One runner."),
            views.runner,
            {200: RunnerView},
            params=(RUNNER,),
            problems=(503,),
        ),
        Operation(
            *("runner-story", "GET", f"{PREFIX}/runners/{{id}}/story", "All that happened to a runner."),
            views.story,
            {200: StoryView},
            params=(RUNNER,),
            problems=(503,),
            text="Also of one that is gone, for as long as the journal goes back.",
        ),
    ]


def _jobs(views: Views) -> list[Operation]:
    return [
        Operation(
            *("jobs", "GET", f"{PREFIX}/jobs", "Jobs, newest first."),
            views.jobs,
            {200: Page[JobView]},
            params=(
                AFTER,
                LIMIT,
                Choice("status", "Only of this status; active: not ended.", words=(*STATUSES, "active")),
                Param("repository", "Only of this repository, owner/name."),
            ),
        ),
        Operation(
            *("job-story", "GET", f"{PREFIX}/jobs/{{id}}/story", "All that happened to a job."),
            views.story,
            {200: StoryView},
            params=(JOB,),
            problems=(503,),
        ),
        Operation(
            *("job", "GET", f"{PREFIX}/jobs/{{id}}", "One job, and why it still waits."),
            views.job,
            {200: JobView},
            params=(JOB,),
            problems=(503,),
        ),
    ]


def _history(views: Views) -> list[Operation]:
    return [
        Operation(
            *("decisions", "GET", f"{PREFIX}/decisions", "Decisions of the gate with their evidence."),
            views.decisions,
            {200: Page[DecisionView]},
            params=(
                AFTER,
                LIMIT,
                Flag("newest", "Newest first; `after` then goes downwards."),
                Param("runner", "Only about this runner."),
                Choice("outcome", "Only with this outcome.", words=OUTCOMES),
                Choice("verdict", "Only on this verdict.", words=tuple(one.value for one in Verdict)),
                Choice("rule", "Only nominated by this rule.", words=tuple(one.value for one in Rule)),
                Choice("via", "Only proved by this means.", words=tuple(one.value for one in Via)),
            ),
            problems=(503,),
            text="A page that is filtered by verdict, rule or via may be short, also empty, while there is a next.",
        ),
        Operation(
            *("journal", "GET", f"{PREFIX}/journal", "Journal entries in their order."),
            views.journal,
            {200: Page[JournalView]},
            params=(AFTER, LIMIT, Param("subject", "Only what concerns this runner or job.")),
            problems=(503,),
        ),
        Operation(
            *(
                "segment",
                "GET",
                f"{PREFIX}/segments/{{number}}",
                "What a segment of the journal starts from.",
            ),
            views.segment,
            {200: SegmentView},
            params=(Param("number", "The segment's number, or `newest`.", path=True, example="newest"),),
            problems=(503,),
        ),
        Operation(
            *("quarantine", "GET", f"{PREFIX}/quarantine", "Events that could not be handled, oldest first."),
            views.quarantine,
            {200: Page[QuarantineView]},
            params=(AFTER, LIMIT),
            problems=(503,),
        ),
    ]


class Views:
    """One method an operation."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def status(self, _: Given) -> Response:
        return json_answer(self._queries.status())

    async def pools(self, given: Given) -> Response:
        try:
            page = self._queries.pool_page(after=given.text("after"), limit=given.number("limit"))
        except BadCursor as error:
            return problem(409, str(error))
        return json_answer(page)

    async def hosts(self, given: Given) -> Response:
        try:
            page = self._queries.host_page(after=given.text("after"), limit=given.number("limit"))
        except BadCursor as error:
            return problem(409, str(error))
        return json_answer(page)

    async def runners(self, given: Given) -> Response:
        return json_answer(
            self._queries.runners(
                after=_cursor(given),
                limit=given.number("limit"),
                pool=given.text("pool"),
                host=given.text("host"),
                state=given.text("state"),
            )
        )

    async def runner(self, given: Given) -> Response:
        name = given.text("id")
        view = self._queries.runner(name)
        return json_answer(view) if view is not None else await self._unknown("runner", name)

    async def jobs(self, given: Given) -> Response:
        return json_answer(
            self._queries.jobs(
                after=_cursor(given),
                limit=given.number("limit"),
                status=given.text("status"),
                repository=given.text("repository"),
            )
        )

    async def job(self, given: Given) -> Response:
        name = given.text("id")
        view = self._queries.job(name)
        return json_answer(view) if view is not None else await self._unknown("job", name)

    async def story(self, given: Given) -> Response:
        name = given.text("id")
        view = await self._queries.story(name)
        return json_answer(view) if view is not None else await self._unknown("runner or job", name)

    async def decisions(self, given: Given) -> Response:
        return json_answer(
            await self._queries.decisions(
                after=given.number("after"),
                limit=given.number("limit"),
                runner=given.text("runner"),
                outcome=given.text("outcome"),
                newest=given.flag("newest"),
                only={name: given.text(name) for name in ("verdict", "rule", "via")},
            )
        )

    async def journal(self, given: Given) -> Response:
        return json_answer(
            await self._queries.journal(
                subject=given.text("subject"), after=given.number("after"), limit=given.number("limit")
            )
        )

    async def quarantine(self, given: Given) -> Response:
        return json_answer(
            await self._queries.quarantine(after=given.number("after"), limit=given.number("limit"))
        )

    async def segment(self, given: Given) -> Response:
        text = given.text("number")
        known = text.isascii() and text.isdigit() and len(text) <= 18
        view = (
            await self._queries.segment(int(text) if known else None) if known or text == "newest" else None
        )
        return json_answer(view) if view is not None else unknown("segment", text)

    async def _unknown(self, what: str, name: str) -> Response:
        return unknown(what, name, await self._queries.near(name))


def _cursor(given: Given) -> str:
    """Return where a list goes on as its query takes it; "" for the beginning, which 0 is too."""
    number = given.number("after")
    return str(number) if number else ""
