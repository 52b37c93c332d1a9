"""Contract suites: what every implementation of a port must do, for authors of adapters.

A suite is a tuple of coroutine functions that take a factory and raise AssertionError; any test runner can
call them. Must not import `adapters`.
"""
