"""In-memory ports: what the daemon asks of the world, answered without a disk, a network or a process.

They pass the same contract suites as the real adapters. Must not import `adapters`.
"""
