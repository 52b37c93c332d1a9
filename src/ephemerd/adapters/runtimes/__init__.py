"""Runtimes: where a runner's environment lives and how it is started, probed, stopped and listed.

An environment ends only through `destroy` with a permit. Must not import another runtime.
"""
