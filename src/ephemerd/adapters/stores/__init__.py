"""Stores: what is committed, in one transaction a step, by one writer.

Rows are the state; the journal explains and is replayed, never loaded. Must not import another store.
"""
