"""The command line: parse, call the API or bootstrap, print, return an exit code.

`--help` and client commands load neither server, store nor forge code; heavy imports stay inside functions.
Must not know the app or an adapter; `lab.py` is the one door to `testing`.
"""
