"""Shipped test tools: in-memory ports, a virtual clock, the forge look-alike, the fake runner, contract suites.

Third-party libraries may be used freely here. Must not import `adapters`: a wire bug that the look-alike and the
client shared would be invisible. Nothing in production imports this room; the one door to it is `ephemerd.cli.lab`.
"""
