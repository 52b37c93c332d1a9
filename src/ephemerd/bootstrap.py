"""Where the concrete classes are chosen and joined: the only place that knows them.

Must not know `testing`.
"""
