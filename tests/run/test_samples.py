"""A long training has no more samples than a curve needs."""

from __future__ import annotations

from launcher.run.samples import Samples

DAY = 24 * 3600


def test_the_first_samples_are_a_second_apart() -> None:
    samples = Samples()
    assert [at for at in range(20) if samples.is_due(100 + at / 4)] == [0, 4, 8, 12, 16]


def test_a_day_of_a_trainer_that_prints_each_second_has_few_samples() -> None:
    samples = Samples()
    taken = [at for at in range(DAY) if samples.is_due(at)]
    assert 3000 < len(taken) < 5000
    assert taken[-1] >= DAY - 60


def test_the_numbers_after_a_pass_are_always_a_sample() -> None:
    samples = Samples()
    assert samples.is_due(0)
    assert not samples.is_due(0.1)
    samples.take_next()
    assert samples.is_due(0.2)
