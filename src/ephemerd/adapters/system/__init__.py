"""The operating system: the clock that never goes back, processes, users, signals, locks.

Must not decide anything: it reads and does, and says what happened.
"""
