"""`intent`: teardown keyed on what a runner was dispatched for (before ephpm/ephemerd#105).

`completed(job)` destroys the runner that was dispatched for the job, whatever it runs by then. There is no
orphan sweep: a runner that nobody ends is torn down when `job_timeout` has passed since its dispatch. A
dispatch that waited for its slot is made whatever happened to its job meanwhile.
"""

from __future__ import annotations

from ephemerd.core.turn import Turn
from ephemerd.domain.job import Job
from ephemerd.testing.simulate.foils.ledger import Earlier


class Intent(Earlier):
    """Believes that a runner runs the job that it was dispatched for."""

    def completed(self, t: Turn, job: Job, runner: str | None) -> None:
        """Destroy "the runner of the job"."""
        for name in list(t.state.index.intents.get(job.key, ())):
            self.tear_down(t, t.state.runners[name], "completed: the job that it was dispatched for")
