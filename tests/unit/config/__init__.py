"""Tests of the settings: sources, errors, secrets, the machine."""
