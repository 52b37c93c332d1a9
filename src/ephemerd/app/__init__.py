"""The shell around the core: one inbox, one consumer, and an executor that turns commands into port calls.

Owns the daemon's loops, recovery and adoption, discovery, the rate budget and the queries.
Must not decide what the core decides, nor import HTTP libraries, SQL, subprocesses or configuration files.
"""
