"""Ephemeral CI runners on your own machines: one fresh runner a job, and none destroyed while it works.

Events come in, a pure core decides, commands go out, and nothing is destroyed without a permit.
The rooms and what may import what: `docs/ARCHITECTURE.md`; import-linter and `tests/laws` keep it so.
"""

__version__ = "0.1.0"
