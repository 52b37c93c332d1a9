"""What the source must never do, read from its syntax trees.

Each law is also shown snippets that break it, so that it cannot pass by being blind.
"""
