"""The small pieces of pages: links, words, moments; what is given is escaped."""

from __future__ import annotations

import pytest

from ephemerd.web.dashboard import pieces
from tests.unit.web.dashboard.page import read

STRANGE = 'a"b<c>&d'


def test_a_runner_and_a_job_are_links_that_name_them_in_full():
    link = read(pieces.runner("eph-s0000001-7rwp-12")).one("a")
    assert (link.attributes["href"], link.text) == ("/runners/eph-s0000001-7rwp-12", "7rwp-12")
    assert link.attributes["title"] == "eph-s0000001-7rwp-12"
    link = read(pieces.job("github/acme/app/7")).one("a")
    assert (link.attributes["href"], link.text) == ("/jobs/github/acme/app/7", "app/7")


def test_a_word_has_its_shape_its_tone_and_its_meaning():
    found = read(pieces.tagged("running"))
    assert found.one("span").attributes["class"] == "tag tone-work"
    assert found.one("span").attributes["title"]
    assert found.one("use").attributes["href"] == "#s-disc"
    assert found.one("span").text == "running"
    assert "title" not in read(pieces.tagged("never heard of")).one("span").attributes


def test_a_moment_is_told_to_scripts_and_people():
    time = read(pieces.at(1_800_000_000_250)).one("time")
    assert time.attributes["datetime"] == "2027-01-15T08:00:00.250Z"
    assert (time.attributes["data-at"], time.text) == ("1800000000250", "08:00:00")
    assert "data-fine" not in time.attributes
    fine = read(pieces.at(1_800_000_000_250, fine=True)).one("time")
    assert "data-fine" in fine.attributes
    assert fine.text == "08:00:00.250"


def test_a_stretch_counts_from_its_beginning():
    found = read(pieces.since(1_000, 201_000)).one("span")
    assert (found.attributes["data-since"], found.text) == ("1000", "3 min 20 s")


def test_what_is_not_there_is_a_dash():
    assert pieces.at(None) == pieces.since(None, 5) == pieces.NOTHING


@pytest.mark.parametrize("piece", [pieces.runner, pieces.job, pieces.tagged, pieces.shape])
def test_nothing_gets_out_of_a_name(piece):
    made = piece(STRANGE)
    assert "<c>" not in made
    assert 'a"b' not in made
