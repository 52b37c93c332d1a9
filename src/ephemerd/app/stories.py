"""The whole story of one runner or job: journal and decisions, told by the core's own words."""

from __future__ import annotations

from ephemerd.app.daemon import Daemon
from ephemerd.core import codec
from ephemerd.core.story import Entry, tell
from ephemerd.domain.ids import RunnerId, parse_job_key
from ephemerd.domain.runner import Decision
from ephemerd.ports.store import JournalEntry, Store
from ephemerd.ports.views import StoryLine

PAGE = 1000
MOST_PAGES = 20
"""A story ends after 20,000 records: more is a fault to look at with `journal export`."""


async def story(daemon: Daemon, subject: str) -> tuple[StoryLine, ...]:
    """Return the story of a runner id or a job's id in order; empty where nothing is known of it."""
    store = daemon.ports.store
    entries, unread = await _entries(store, subject)
    decisions = await _decisions(store, _runner_of(daemon, subject))
    lines = [
        StoryLine(line.at, line.seq, line.kind, line.subject, line.text, line.evidence)
        for line in tell(entries, decisions, subject)
    ]
    return tuple(sorted([*lines, *unread], key=lambda line: line.at) if unread else lines)


def _runner_of(daemon: Daemon, subject: str) -> str:
    """Whose decisions belong to the story: the runner's own, or those of the runner that had the job."""
    key = parse_job_key(subject)
    if key is None:
        return subject
    row = daemon.core.state.jobs.get(key)
    return row.ours if row is not None and row.ours is not None else RunnerId("")


async def _entries(store: Store, subject: str) -> tuple[list[Entry], list[StoryLine]]:
    entries: list[Entry] = []
    unread: list[StoryLine] = []
    after = 0
    for _ in range(MOST_PAGES):
        page = await store.journal(subject=subject, after=after, limit=PAGE)
        for record in page:
            try:
                entries.append(Entry(record.seq, record.now, codec.decode_event(record.event)))
            except ValueError as error:
                unread.append(_unread(record, error))
        if len(page) < PAGE:
            break
        after = page[-1].seq
    return entries, unread


def _unread(record: JournalEntry, error: ValueError) -> StoryLine:
    kind = str(record.event.get("kind", ""))
    return StoryLine(
        record.now, record.seq, kind, "", "a record that this version cannot read", (str(error),)
    )


async def _decisions(store: Store, runner: str) -> list[Decision]:
    if not runner:
        return []
    found: list[Decision] = []
    after = 0
    for _ in range(MOST_PAGES):
        page = await store.decisions(after=after, limit=PAGE, runner=runner)
        found += [codec.decode_decision(plain) for plain in page]
        if len(page) < PAGE:
            break
        after = found[-1].id
    return found
