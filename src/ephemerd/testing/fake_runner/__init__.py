"""A stand-in for the GitHub runner application: real processes that behave as ``actions/runner`` does.

``folder.py`` writes its folder; ``program/`` is what runs in it, on the standard library alone and without the rest
of this project. It talks to the forge look-alike, which spends every delay for it.
"""
