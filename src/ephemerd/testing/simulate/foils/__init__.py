"""Foils: honest versions of earlier designs, and ours with one check taken out, on the same seeds.

Each stands where the real core stands (`scheduler.Scheduler`); only the simulator's models obey them.
"""

from __future__ import annotations

from ephemerd.testing.simulate.foils.intent import Intent
from ephemerd.testing.simulate.foils.sweep import Sweep
from ephemerd.testing.simulate.foils.veto import Veto
from ephemerd.testing.simulate.foils.without import NoFence, NoLog, NoProbe, NoRevalidate, NoSettle
from ephemerd.testing.simulate.scheduler import Factory, Gate

POLICIES: dict[str, Factory] = {
    "gate": Gate,
    "intent": Intent,
    "sweep": Sweep,
    "veto": Veto,
    "gate-no-probe": NoProbe,
    "gate-no-log": NoLog,
    "gate-no-fence": NoFence,
    "gate-no-settle": NoSettle,
    "gate-no-revalidate": NoRevalidate,
}
"""Every policy by its name; `gate` is the real core."""
