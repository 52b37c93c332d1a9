"""The truth log: what really happened, told by the forge's side alone.

Each record is one JSON object. Common keys: ``seq`` (1, 2, …), ``ms`` (milliseconds since the look-alike
started, monotonic, three decimals), ``at`` (wall clock, milliseconds since 1970) and ``kind``. The other keys
depend on the kind:

==================  ==============================================================================
kind                keys
==================  ==============================================================================
forge_started       weather, seed, time_scale, refuses_from
job_queued          job, run, labels, name, tag, duration_ms (again after an approval)
job_waiting         job
job_cancelled_queued job
foreign_taken       job, runner
job_assigned        job, runner
job_acknowledged    job, runner
job_acquired        job, runner
worker_started      job, runner, pid
job_in_progress     job, runner
job_completed       job, runner or null, conclusion, reason, acquired
worker_exited       job, runner, pid, clean (it had said that the job was over)
job_requeued        job, runner, cause (not_picked_up, runner_lost, deregistered, ghost)
runner_registered   runner, runner_id, labels, answer_lost
runner_online       runner, pid
runner_offline      runner
runner_deregistered runner, by (api, self, expired, ghost, lost)
runner_lost         runner, job (the lease lapsed)
listener_exited     runner, pid, clean (it had ended its session)
misbehaved          runner, what, source (weather or admin), job or null
fence_asked         runner, status, held, job or null (a DELETE and its answer)
delivery_sent       delivery, guid, event, action, job, status, handling_ms, redelivery
delivery_lost       guid, action, job, listed
delivery_held       guid, action, job
api_call            method, path (template), status, took_ms, who (token, app:N, installation:N), runner (of
                    a registration), wait_ms (of a limit: how long it says, or means, to send nothing)
outage              state (begins, ends), what
admin               what, …
==================  ==============================================================================

``reason`` of ``job_completed``: ``finished``, ``cancelled``, ``shutdown`` (the runner was told to stop),
``worker_crashed``, ``lost_communication`` (the lease lapsed), ``foreign``, ``skipped``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class TruthLog:
    """An append-only log in memory and, if a path is given, in a JSON lines file that is flushed per record."""

    def __init__(self, path: Path | None = None) -> None:
        self.records: list[Record] = []
        self._zero = time.monotonic()
        self._file = path.open("a", encoding="utf-8") if path else None
        self._waiters: set[asyncio.Future[None]] = set()

    def now_ms(self) -> float:
        """Milliseconds since this log was opened; never goes back."""
        return round((time.monotonic() - self._zero) * 1000, 3)

    def add(self, kind: str, **fields: Any) -> Record:
        """Append a record and wake everyone who waits for a change."""
        record: Record = {
            "seq": len(self.records) + 1,
            "ms": self.now_ms(),
            "at": int(time.time() * 1000),
            "kind": kind,
            **fields,
        }
        self.records.append(record)
        if self._file is not None:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._file.flush()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        return record

    async def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition()`` holds, at most ``timeout`` seconds; return whether it held.

        The condition is looked at once now and once after each new record.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not condition():
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait_for(waiter, max(0.0, deadline - loop.time()))
            except TimeoutError:
                return condition()
            finally:
                self._waiters.discard(waiter)
        return True

    def lines(self, since: int = 0, kinds: frozenset[str] | None = None) -> Iterator[str]:
        """Yield the records after ``since`` (a ``seq``) as JSON lines, only of ``kinds`` if given."""
        for record in self.records[since:]:
            if kinds is None or record["kind"] in kinds:
                yield json.dumps(record, separators=(",", ":")) + "\n"

    def close(self) -> None:
        """Close the file; the records stay readable."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_truth(path: Path) -> list[Record]:
    """Read a truth file back; a last line that was cut off is left out."""
    return list(_parse(path.read_text(encoding="utf-8").splitlines(keepends=True)))


def _parse(lines: Iterable[str]) -> Iterator[Record]:
    for line in lines:
        if line.endswith("\n") and line.strip():
            yield json.loads(line)
