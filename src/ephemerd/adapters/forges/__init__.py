"""Forges: each has a pure `wire` (bytes to domain and back) and a `client` that does the I/O.

Must not import another forge, nor hide a retry of a call that creates or destroys.
"""
