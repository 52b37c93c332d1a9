"""Many runs at once: each is its own history, in whatever process it runs."""

from __future__ import annotations

import multiprocessing

import pytest

from ephemerd.testing.simulate import front
from ephemerd.testing.simulate.fleet import Order, carry_out, run_all

ORDERS = [Order("gate", "bursty", seed, 40) for seed in (1, 2, 3)] + [Order("intent", "calm", 1, 30)]


@pytest.fixture(scope="module")
def alone() -> list[str]:
    return [carry_out(order).command_hash for order in ORDERS]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_orders_and_are_what_they_are_alone(alone, workers):
    told: list[int] = []
    results = run_all(ORDERS, workers=workers, progress=told.append)
    assert [result.command_hash for result in results] == alone
    assert [(result.policy, result.weather, result.seed) for result in results] == [
        (order.policy, order.weather, order.seed) for order in ORDERS
    ]
    assert told == sorted(told)
    assert told[-1] == 150


def test_progress_is_told_within_a_run():
    told: list[int] = []
    run_all([Order("gate", "calm", 1, 250)], progress=told.append)
    assert told[-1] == 250
    assert len(told) >= 3


@pytest.mark.parametrize("workers", [1, 2])
def test_what_goes_wrong_in_a_run_goes_wrong_here(workers):
    with pytest.raises(KeyError, match="nobody"):
        run_all([*ORDERS[:1], Order("nobody", "calm", 1, 5)], workers=workers)


def test_an_interrupt_ends_the_processes_at_once():
    """A run of a million jobs would take an hour: leaving must not wait for it."""

    def interrupt(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([Order("gate", "calm", seed, 1_000_000) for seed in (1, 2)], workers=2, progress=interrupt)
    # One that the pool's own thread waits for at the same moment counts as alive until that thread has noted its end.
    while left := multiprocessing.active_children():
        for process in left:
            process.join()


def test_the_front_gives_one_run_alone_and_several_with_a_total():
    one, rows, broken = front.run(jobs=20, seeds=[1], policies=["gate"], weathers=["calm"])
    assert (one["jobs"], one["seed"], broken) == (20, 1, [])
    assert [row["policy"] for row in rows] == ["gate"]
    two, rows, broken = front.run(jobs=20, seeds=[1, 2], policies=["gate"], weathers=["calm"], workers=1)
    assert set(two) == {"runs", "total"}
    assert two["runs"][0] == {**one, "wall_s": two["runs"][0]["wall_s"], **_speeds(two["runs"][0])}
    assert (two["total"]["jobs"], two["total"]["seed"], broken) == (40, [1, 2], [])


def _speeds(run: dict[str, float]) -> dict[str, float]:
    return {key: run[key] for key in ("jobs_per_s", "events_per_s")}


def test_nothing_is_promised_for_foils():
    figures, rows, broken = front.run(jobs=60, seeds=[1], policies=["intent"], weathers=["bursty"])
    assert figures["killed"] > 0
    assert rows[0]["killed_per_100k"] > 0
    assert broken == []
    assert front.first_failure(figures) is None


def test_names_are_offered_mildest_and_gate_first():
    assert front.policies()[:4] == ("gate", "intent", "sweep", "veto")
    assert front.weathers() == ("calm", "bursty", "lossy", "outage", "hostile")
