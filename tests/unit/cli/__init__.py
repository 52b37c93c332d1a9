"""Tests of the command line, most of them against a small real server on a unix socket."""
