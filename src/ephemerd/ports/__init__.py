"""What the daemon asks of the world, as protocols in the words of the domain.

Owns `Forge`, `Runtime`, `Store`, `Webhooks`, `Clock`, `Meter`, errors classed by remedy, and the views that
queries, metrics and the API read.
Must not know an adapter, nor import anything but the standard library, `domain` and `core`.
"""
