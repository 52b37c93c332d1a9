"""The pure state machine: an event and the time go in, commands, changed rows and decisions come out.

Owns events, commands, the transition table, matching, nomination, the reap decision, the gate and the codec.
Must not do I/O, read a clock, draw at random, make ids, log, iterate over a set, or import any other library than
msgspec.
The same bytes in give the same bytes out: the simulator, `replay`, `explain` and crash recovery rest on it.
"""
