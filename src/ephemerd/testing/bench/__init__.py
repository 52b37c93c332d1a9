"""Benchmarks: what this program exists for, measured against a baseline in the same run.

Owns `ephemerd bench`. Each benchmark is a function that returns figures; nothing here is a test, and nothing in the
test suite is timed. Must not import adapters: what needs them is made by `bootstrap` or runs as a program.
"""
