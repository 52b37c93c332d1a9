"""Shipped test tools: in-memory ports, a virtual clock, the look-alike, the fake runner, contract suites.

Third-party libraries may be used freely here. Must not import `adapters`: a wire bug that the look-alike and
the client shared would be invisible. The daemon never loads this room; its one door is `ephemerd.cli.lab`.
"""
