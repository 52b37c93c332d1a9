"""Metrics and logs as the outside reads them, made from the snapshot that the ports define.

Must not keep counts of its own (counters are part of the state), nor let a secret reach a log line.
"""
