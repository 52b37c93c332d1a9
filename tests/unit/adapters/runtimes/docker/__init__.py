"""Tests of the container runtime without an engine."""
