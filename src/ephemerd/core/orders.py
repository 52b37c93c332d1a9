"""What a person ordered: cordon, drain, kill. Orders are events and pass the same gate."""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core.events import CordonOrdered, DrainOrdered, KillOrdered, Target, UncordonOrdered
from ephemerd.core.turn import Turn
from ephemerd.domain.runner import FINAL, Order


def on_cordon(t: Turn, event: CordonOrdered | DrainOrdered) -> None:
    """Plan nothing there from now on; every unbound runner is nominated as it listens."""
    draining = isinstance(event, DrainOrdered)
    why = f"{event.who}: {event.reason}" if event.reason else event.who
    if event.target is Target.ALL:
        t.set_meta("cordoned_at", t.state.meta.get("cordoned_at") or t.now)
        t.set_meta("cordoned", why)
        t.set_meta("draining", draining)
    elif event.target is Target.POOL and event.name in t.state.pools:
        pool = t.state.pools[event.name]
        since = pool.cordoned_at or t.now
        t.put_pool(replace(pool, cordoned=why, draining=draining, cordoned_at=since))
    elif event.target is Target.HOST and event.name in t.state.hosts:
        host = t.state.hosts[event.name]
        since = host.cordoned_at or t.now
        t.put_host(replace(host, cordoned=why, draining=draining, cordoned_at=since))
    t.note("info", "draining" if draining else "cordoned", target=event.target.value, name=event.name, by=why)
    touch_live(t)


def on_uncordon(t: Turn, event: UncordonOrdered) -> None:
    """Take work again."""
    if event.target is Target.ALL:
        t.set_meta("cordoned", "")
        t.set_meta("draining", False)
        t.set_meta("cordoned_at", 0)
    elif event.target is Target.POOL and event.name in t.state.pools:
        t.put_pool(replace(t.state.pools[event.name], cordoned="", draining=False, cordoned_at=0))
    elif event.target is Target.HOST and event.name in t.state.hosts:
        t.put_host(replace(t.state.hosts[event.name], cordoned="", draining=False, cordoned_at=0))
    t.note("info", "uncordoned", target=event.target.value, name=event.name, by=event.who)
    touch_live(t)


def on_kill(t: Turn, event: KillOrdered) -> None:
    """Nominate a runner because a person asked; without force nothing but a proven idle one goes."""
    row = t.runner(event.runner)
    if row is None or row.state in FINAL:
        return
    order = Order(event.who, event.reason, event.even_if_busy, t.now)
    t.note("info", "kill ordered", runner=row.id, by=event.who, reason=event.reason, force=event.even_if_busy)
    t.change_runner(row, order_given=order, vetoed_until=t.now)


def touch_live(t: Turn) -> None:
    """Have every live runner looked at, and those that are gone and still stand for a unit of demand."""
    for members in (*t.state.index.live.values(), *t.state.index.consuming.values()):
        t.touch(members)
