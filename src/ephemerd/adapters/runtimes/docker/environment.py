"""One container as the daemon holds it: who, where, and what was seen of it."""

from __future__ import annotations

from collections import deque

from ephemerd.adapters.kit.evidence import Evidence
from ephemerd.adapters.runtimes.docker import local
from ephemerd.adapters.runtimes.docker.look import Look
from ephemerd.adapters.runtimes.docker.mirror import Mirror
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.adapters.runtimes.docker.output import Output
from ephemerd.adapters.runtimes.docker.reference import Reference, place_of
from ephemerd.domain.verdict import Files, ProbeReport, Sign

PROBE = "docker"


class Environment:
    """Holds what must outlive one look: the latches of the files, and how they are reached."""

    def __init__(self, reference: Reference, options: DockerOptions) -> None:
        self.reference = reference
        self.options = options
        self.place = place_of(reference.runner, options.files_dir, options.logs_dir)
        self.evidence = Evidence(self.place)
        self.mirror = Mirror(self.place, options.runner_root)
        self.output = Output(self.place.log)
        self.pid = 0
        self.far = False


def look_near(environment: Environment, now: int, told: deque[tuple[Sign, str]]) -> Look | None:
    """Look at the processes, then at the files, of a container of this machine, without the engine; return what was
    seen, and add the new signs to `told`. None where that is not to be had. Blocks for a moment."""
    container, evidence = environment.reference.container, environment.evidence
    seen = local.look(environment.pid, container)
    if seen is None or not environment.mirror.sync_local(environment.pid, container):
        return None
    for pid in seen.workers:
        told.extend(evidence.saw_worker((container, pid)))
    told.extend(evidence.refresh(now))
    return seen


def report(environment: Environment, seen: Look) -> ProbeReport:
    """Put a look and the files into the words of the port."""
    evidence = environment.evidence
    faults = evidence.faults()
    if environment.mirror.fault:
        faults.append(environment.mirror.fault)
    if not environment.output.attached:
        faults.append("the output is not followed at the moment")
    pids = ",".join(str(pid) for pid in (*seen.workers, *seen.others)[:8])
    counted = f"{len(seen.workers)} workers, {len(seen.others)} other processes"
    words = [f"{counted}{f' (pid {pids})' if pids else ''}, by the {seen.via}", *faults]
    if seen.detail:
        words.append(seen.detail)
    return ProbeReport(
        listing=seen.listing,
        workers=len(seen.workers),
        strangers=0 if seen.workers else len(seen.others),
        listener_alive=bool(seen.listener),
        files=Files.UNREADABLE if faults else Files.HEALTHY,
        listening=evidence.listening,
        offered_at=evidence.offered_at,
        announced_at=evidence.announced_at,
        ended_at=evidence.ended_at,
        probe=PROBE,
        detail="; ".join(words),
    )
