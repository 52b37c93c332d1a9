"""A look-alike of GitHub for testing runner managers, over real HTTP.

It owns what a runner manager sees of the forge (REST, webhooks), what a runner application sees of it (the
broker), an admin API that makes jobs appear and things go wrong, and a truth log from which outcomes are counted.
It must not import an adapter or the core: a wire mistake shared by both sides would be invisible.
"""
