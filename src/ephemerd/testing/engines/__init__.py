"""A Docker Engine for tests and demonstrations: one that is there, or one of our own, and images made from this
machine's files, since no registry is asked. Never ends an engine or a container that it did not start."""
