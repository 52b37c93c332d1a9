"""One environment as the daemon holds it: who, where, and what was seen of it."""

from __future__ import annotations

from pathlib import Path

from ephemerd.adapters.kit.evidence import Evidence
from ephemerd.adapters.runtimes.process import cgroup
from ephemerd.adapters.runtimes.process.identity import Place, Reference
from ephemerd.adapters.runtimes.process.processes import Table
from ephemerd.adapters.runtimes.process.tree import Look, look, nothing
from ephemerd.domain.verdict import Files, Listing, ProbeReport

PROBE = "process"


class Environment:
    """Holds what must outlive one look: the latches of the files."""

    def __init__(self, reference: Reference, place: Place, group: Path | None) -> None:
        self.reference = reference
        self.place = place
        self.group = group
        self.evidence = Evidence(place)

    def look(self, machine: Table) -> Look:
        """Look at the processes. Blocks for some milliseconds; never raises."""
        try:
            if machine.boot() != self.reference.boot:
                return nothing("the machine was started anew since")
        except OSError as error:
            return Look(Listing.FAILED, False, False, (), (), (), str(error))
        return look(machine, self.reference, cgroup.pids(self.group))


def report(environment: Environment, seen: Look) -> ProbeReport:
    """Put a look and the files into the words of the port."""
    evidence = environment.evidence
    faults = evidence.faults()
    counted = f"{len(seen.workers)} workers, {len(seen.others)} other processes"
    pids = ",".join(str(identity.pid) for identity in seen.all[:8])
    words = [f"{counted}{f' (pid {pids})' if pids else ''}", *faults]
    if seen.detail:
        words.append(seen.detail)
    return ProbeReport(
        listing=seen.listing,
        workers=len(seen.workers),
        strangers=0 if seen.workers else len(seen.others),
        listener_alive=seen.listener,
        files=Files.UNREADABLE if faults else Files.HEALTHY,
        listening=evidence.listening,
        offered_at=evidence.offered_at,
        announced_at=evidence.announced_at,
        ended_at=evidence.ended_at,
        probe=PROBE,
        detail="; ".join(words),
    )
