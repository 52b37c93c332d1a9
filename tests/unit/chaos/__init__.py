"""Chaos: what it judges by, and what it promises."""
