"""Tests of the documentation: generated parts are up to date, links and examples hold."""
