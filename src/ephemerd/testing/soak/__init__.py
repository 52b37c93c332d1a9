"""The soak: the real daemon shell over in-memory ports, in virtual time, for as many jobs as asked.

Owns a small world (jobs, registrations, environments) and the measuring of memory. Decides nothing about
runners: that is the daemon's; and must not know how the outside really looks, as the simulator's models do.
"""

from ephemerd.testing.soak.run import Soak, SoakResult, soak

__all__ = ["Soak", "SoakResult", "soak"]
