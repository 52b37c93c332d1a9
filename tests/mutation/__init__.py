"""Mutation testing of `core`: each small change of its source has to make one of its own tests fail.

Owns the changes (`mutants.py`), the trial of each in a forked process (`trial.py`), the list of the changes
that no test notices, with the reason (`survivors.toml`), and its page in the documentation (`page.py`).
Must not be imported by the package or by other tests, and never writes into the tree that it is run from.
"""
