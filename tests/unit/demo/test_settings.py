"""The configuration that the demo writes is a valid one, and only long durations are scaled."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ephemerd.config.model import Settings
from ephemerd.config.policy import PolicySettings
from ephemerd.domain.pool import Policy
from ephemerd.testing.demo.settings import (
    ELSEWHERE,
    NOT_SCALED,
    Places,
    config_text,
    scaled_policy,
    write_secret,
)
from ephemerd.testing.weather import load


def settings(folder: Path, **chosen: Any) -> Settings:
    text = config_text(
        Places(folder),
        load("bursty"),
        forge_url="http://127.0.0.1:1",
        repository="acme/app",
        webhook_port=2,
        factor=20,
        **chosen,
    )
    return Settings.model_validate(tomllib.loads(text))


@pytest.fixture
def written(tmp_path) -> Settings:
    return settings(tmp_path)


def test_the_written_file_is_valid_and_scaled(written):
    assert written.policy.confirm_after == 3000
    assert written.policy.settle == 5000, "5 s is not above 10 s"
    assert written.policy.probe_timeout == 10_000, "10 s is not above 10 s"
    assert written.policy.gone_kept == Policy().gone_kept, "a memory is not waited for"
    assert written.pools["act"].surplus_grace == 1500
    assert written.runner.orphan_sweep.grace == 30_000
    assert written.runner.claim_retry.backoff == (1500, 3000, 6000, 15_000, 30_000)


def test_the_acts_pool_does_not_follow_and_the_other_does(written):
    assert written.pools["act"].follow == "listening"
    assert written.pools["burst"].follow == "all"
    assert written.pools["burst"].max_concurrent == load("bursty").slots
    assert written.hosts["local"].slots == sum(pool.max_concurrent for pool in written.pools.values())
    assert written.runner.allow_root == (os.geteuid() == 0)


def test_a_job_timeout_is_scaled_and_only_the_bursts(written, tmp_path):
    assert written.pools["burst"].job_timeout is None
    pools = settings(tmp_path, job_timeout_s=3600.0).pools
    assert (pools["burst"].job_timeout, pools["act"].job_timeout) == (180_000, None)


def test_every_number_of_the_policy_is_scaled_or_named_as_an_exception():
    long = {
        item.name
        for item in msgspec.structs.fields(Policy)
        if isinstance(getattr(Policy(), item.name), int) and getattr(Policy(), item.name) > 10_000
    }
    assert set(scaled_policy(2)) == long - NOT_SCALED - ELSEWHERE
    assert set(scaled_policy(2)) <= set(PolicySettings.model_fields)
    assert {item.name for item in msgspec.structs.fields(Policy)} >= NOT_SCALED


def test_secrets_are_for_their_owner_alone(tmp_path):
    write_secret(tmp_path / "secret", "s3cret")
    assert (tmp_path / "secret").read_text() == "s3cret\n"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_secret(tmp_path / "secret", "another")
