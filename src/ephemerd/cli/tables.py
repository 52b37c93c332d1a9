"""How each view looks for people: which columns, in which words. Made to fit 80 columns."""

from __future__ import annotations

from typing import Any

from ephemerd.cli.output import Facts, Page, Points, Table, clean, clock, or_dash, span

Plain = dict[str, Any]
STATE_ORDER = {
    state: place
    for place, state in enumerate(
        ("stuck", "abandoned", "retiring", "finishing", "running", "assigned", "listening", "starting")
    )
}
"""What wants attention first, then as runners live, from the end."""


def counts(numbers: Plain) -> str:
    """Return the counts that are not zero, largest concern first as the daemon orders them."""
    shown = [f"{count} {name}" for name, count in numbers.items() if count]
    return ", ".join(shown) or "none"


def status_page(status: Plain) -> Page:
    """Return the page of `status`: health with its reasons, then the counts."""
    health = status["health"]
    points = Points([clean(reason) for reason in health["reasons"]])
    rows = [
        ("daemon", f"ephemerd {clean(status['version'])}, pid {status['pid']}, {daemon_state(status)}"),
        ("up", f"{span(status['uptime_s'])} (since {clock(status['started'], day=True)})"),
        ("slots", f"{status['slots_held']} of {status['slots']} held{_difference(status)}"),
        ("runners", counts(status["runners"])),
        ("jobs", counts(status["jobs"])),
        ("inbox", f"{status['inbox_depth']} waiting, {status['inbox_lag_s']:.3f} s behind"),
    ]
    if status["quarantined"]:
        rows.append(("quarantine", f"{status['quarantined']} events that could not be handled"))
    if storage := status.get("storage"):
        left = f", {_mib(storage['disk_free'])} free on its disk" if storage["disk_free"] is not None else ""
        rows.append(("store", f"{_mib(storage['total'])}{left}"))
    if status.get("needs_restart"):
        rows.append(("restart", f"needed for {', '.join(map(clean, status['needs_restart']))}"))
    rows.extend(("application", _application(one, status["now"])) for one in status.get("applications", ()))
    for scope, at in status["reconciled"].items():
        ago = span((status["now"] - at) / 1_000) + " ago" if at else "not yet"
        rows.append(("reconciled", f"{clean(scope)}: {ago}"))
    rows.extend(("deliveries", _recovery(one, status["now"])) for one in status.get("recoveries", ()))
    rows.extend(("rate limit", _rate(rate)) for rate in status["rates"])
    return Page([clean(health["status"]), points, Facts(rows)])


def daemon_state(status: Plain) -> str:
    """Return what the daemon is about, and what is cordoned."""
    state = "stopping" if status["stopping"] else "draining" if status["draining"] else "serving"
    if not status["ready"]:
        state = "starting"
    return f"{state}, cordoned: {', '.join(map(clean, status['cordoned']))}" if status["cordoned"] else state


def _mib(size: int) -> str:
    mib = size / 1024**2
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"


def _application(one: Plain, now: int) -> str:
    """Say which downloaded runner application a scope's new runners are made from, and what becomes of it."""
    said = f"{clean(one['version'])}, {span(one['age_s'])} old" if one["version"] else "none yet"
    if one["verified"] is False:
        said += ", unverified"
    if one["refused_from"] is not None:
        said += f", refused from {clock(one['refused_from'], day=True)} on"
    if one["fetched"] is not None:
        of = f" of {_mib(one['fetching'])}" if one["fetching"] else ""
        said += f"; fetching {clean(one['listed'])}: {_mib(one['fetched'])}{of}"
    elif one["problem"]:
        said += f"; not renewed: {clean(one['problem'])}"
    elif one["checked"] is not None:
        said += f"; the forge was asked {span(max(0, now - one['checked']) / 1_000)} ago"
    return f"{clean(one['scope'])}: {said}"


def _recovery(one: Plain, now: int) -> str:
    """Say how the fetching of failed deliveries goes for one hook."""
    hook = clean(one["hook"])
    if one["problem"]:
        return f"{hook}: failed ones are not fetched: {clean(one['problem'])}"
    looked = f"looked {span((now - one['looked']) / 1_000)} ago" if one["looked"] else "not looked yet"
    return f"{hook}: {one['recovered']} fetched that had failed, {looked}"


def _rate(rate: Plain) -> str:
    whose = " ".join(clean(rate[key]) for key in ("forge", "account", "resource") if rate[key])
    text = f"{whose}: {rate['remaining']} of {rate['limit']} calls left, back at {clock(rate['reset'])}"
    kept = rate["remaining"] <= rate["reserve"] and rate["reserve"]
    return f"{text}; the last {rate['reserve']} are kept for registrations and fences" if kept else text


def _difference(status: Plain) -> str:
    difference = status["slot_accounting_difference"]
    return f" (ACCOUNTING DIFFERENCE {difference}: report this)" if difference else ""


def pools_page(pools: list[Plain]) -> Page:
    rows = [
        (
            clean(pool["name"]),
            clean(pool["host"]),
            f"{pool['held']}/{pool['max_concurrent']}",
            str(pool["queued"]),
            counts(pool["runners"]) if pool["held"] else "-",
            ", ".join(map(clean, pool["labels"])) + pool_note(pool),
        )
        for pool in pools
    ]
    titles = ("POOL", "HOST", "HELD", "QUEUED", "RUNNERS", "LABELS")
    return Page([Table(titles, rows, frozenset({2, 3}), frozenset({4, 5}), "no pools")])


def pool_note(pool: Plain) -> str:
    """Return what is special about a pool, in brackets after a blank; nothing mostly."""
    if not pool.get("configured", True):
        return " (removed, drains)"
    return f" ({_cordoned(pool)})" if pool["cordoned"] else ""


def _cordoned(row: Plain) -> str:
    """Say who cordoned a pool or host, why and for how long, as far as the daemon tells it."""
    ago = f" for {span(row['cordoned_s'])}" if row.get("cordoned_s") is not None else ""
    by = f" by {clean(row['cordoned_by'])}" if row.get("cordoned_by") else ""
    return f"cordoned{ago}{by}"


def hosts_page(hosts: list[Plain]) -> Page:
    shown = any(host.get("applications") for host in hosts)
    rows = [
        (
            clean(host["name"]),
            str(host["slots"]),
            str(host["held"]),
            str(host["free"]),
            str(host["abandoned"]),
            _cordoned(host).removeprefix("cordoned ").replace("cordoned", "yes")
            if host["cordoned"]
            else "no",
            *((", ".join(map(clean, host.get("applications", ()))) or "-",) if shown else ()),
        )
        for host in hosts
    ]
    titles = ("HOST", "SLOTS", "HELD", "FREE", "ABANDONED", "CORDONED", *(("RUNNER",) if shown else ()))
    return Page([Table(titles, rows, frozenset({1, 2, 3, 4}), empty="no hosts")])


def runners_page(runners: list[Plain]) -> Page:
    rows = [
        (
            clean(runner["id"]),
            clean(runner["pool"]),
            clean(runner["state"]),
            span(runner["since_s"]),
            job_of(runner),
            runner_note(runner),
        )
        for runner in runners
    ]
    titles = ("RUNNER", "POOL", "STATE", "FOR", "JOB", "NOTE")
    return Page([Table(titles, rows, frozenset({3}), frozenset({4, 5}), "no runners")])


def job_of(runner: Plain) -> str:
    """Return the job that a runner has or had, else the one that it was made for."""
    return short_job(runner["job"]) or (f"for {short_job(runner['intent'])}" if runner["intent"] else "-")


def runner_note(runner: Plain) -> str:
    """Return what a person would ask about this runner next."""
    notes = []
    if runner["gate"]:
        notes.append(f"in the gate as {clean(runner['gate']['rule'])}: {clean(runner['gate']['phase'])}")
    elif runner["vetoes"]:
        notes.append(f"vetoed {runner['vetoes']}x")
    if runner["bound"]:
        notes.append(f"{clean(runner['bound'])} sign")
    if runner["fence"]:
        notes.append(f"fence {clean(runner['fence'])}")
    notes += [clean(runner[key]) for key in ("stuck", "ending") if runner[key]]
    if runner["adopted"]:
        notes.append("adopted")
    return ", ".join(notes) or "-"


def short_job(job: str | None) -> str:
    """Return `name/number` of a job's id `forge/owner/name/number`."""
    return "/".join(clean(job).split("/")[-2:]) if job else ""


def jobs_page(jobs: list[Plain]) -> Page:
    rows = [
        (
            str(job["number"]),
            clean(job["repository"]),
            clean(job["conclusion"] or job["status"]),
            span(job["waited_s"]),
            clean(job["name"]) or "-",
            or_dash(job["runner"]) if job["runner"] else or_dash(job["why"]),
        )
        for job in jobs
    ]
    titles = ("JOB", "REPOSITORY", "STATUS", "WAITED", "NAME", "RUNNER OR WHY NOT YET")
    return Page([Table(titles, rows, frozenset({3}), frozenset({4, 5}), "no jobs")])


def decisions_page(decisions: list[Plain]) -> Page:
    rows = [
        (
            clock(decision["at"]),
            clean(decision["runner"]),
            clean(decision["rule"]),
            clean(decision["outcome"]),
            f"{clean(decision['verdict'])}/{clean(decision['via'])}",
            clean(decision["reason"]),
        )
        for decision in decisions
    ]
    titles = ("AT", "RUNNER", "RULE", "OUTCOME", "VERDICT/BY", "REASON")
    return Page([Table(titles, rows, wraps=frozenset({5}), empty="no decisions")])
