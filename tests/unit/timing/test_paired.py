"""The verdict on rounds: against scipy's signed-rank test, and by simulation."""

import numpy as np
import pytest
from scipy.stats import wilcoxon

from autotune.statistics import Verdict
from autotune.timing.contest import LOOKS
from autotune.timing.paired import judge, speedup, typical


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize("count", [8, 16, 33])
def test_the_interval_holds_the_shifts_that_the_signed_rank_test_accepts(count, level):
    rng = np.random.default_rng(count)
    logs = rng.normal(0.3, 1.0, count)
    found = speedup(np.exp(-logs).tolist(), [1.0] * count, level)
    alpha = 1 - level
    for end, outwards in ((np.log(found.low), -1e-6), (np.log(found.high), 1e-6)):
        assert wilcoxon(logs - end + outwards, method="exact").pvalue > alpha
        assert wilcoxon(logs - end - outwards, method="exact").pvalue <= alpha


def test_too_few_rounds_have_no_interval():
    assert speedup([1.0] * 5, [2.0, 2.1, 2.2, 2.0, 2.1]).low is None
    assert speedup([1.0] * 6, [2.0, 2.1, 2.2, 2.0, 2.1, 2.3]).low == pytest.approx(2.0)


def test_a_disturbed_round_hardly_moves_the_figures():
    times = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 50.0]
    assert typical(times).value == pytest.approx(1.0, abs=0.01)
    assert speedup(times, [2.0] * 10).value == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.3, Verdict.FASTER), (0.8, Verdict.SLOWER), (1.0, Verdict.SAME), (1.017, Verdict.UNSURE)],
)
def test_the_verdict_follows_the_ratio(ratio, verdict):
    rng = np.random.default_rng(3)
    first, second = rng.normal(1, 0.01, (2, 32))
    assert judge((second / ratio).tolist(), first.tolist(), 7).verdict is verdict


def test_noise_without_a_difference_is_unsure():
    first, second = np.random.default_rng(4).lognormal(0, 0.5, (2, 32))
    assert judge(second.tolist(), first.tolist(), 7).verdict is Verdict.UNSURE


def test_times_must_be_positive_and_paired():
    for candidate, reference in (([1.0], []), ([], []), ([0.0], [1.0])):
        with pytest.raises(ValueError, match="above 0"):
            speedup(candidate, reference)
    with pytest.raises(ValueError, match="above 0"):
        typical([])


def noise(rng, rounds):
    """Blocks in the order they run: drifting, dependent, with disturbances that last a while."""
    blocks = 2 * rounds
    drift = rng.normal(0, 0.02, blocks).cumsum()
    disturbed = np.convolve(rng.random(blocks) < 0.05, np.ones(5))[:blocks] > 0
    return np.exp(drift + rng.standard_t(2, blocks) * 0.02 + disturbed * rng.uniform(0.1, 1))


def test_two_equal_candidates_are_called_different_in_at_most_2_percent():
    rng = np.random.default_rng(6)
    wrong, runs = 0, 300
    for _ in range(runs):
        rounds = 64
        blocks = noise(rng, rounds).reshape(rounds, 2)
        first = rng.integers(0, 2, rounds)
        ours, theirs = blocks[range(rounds), first], blocks[range(rounds), 1 - first]
        looks = [rounds for rounds in LOOKS if rounds <= 64]
        verdicts = {judge(ours[:n].tolist(), theirs[:n].tolist(), 7).verdict for n in looks}
        wrong += bool(verdicts & {Verdict.FASTER, Verdict.SLOWER})
    assert wrong <= 0.02 * runs


def test_the_interval_covers_the_true_ratio():
    rng = np.random.default_rng(8)
    covered, runs = 0, 400
    for _ in range(runs):
        first, second = rng.lognormal(0, 0.1, (2, 24))
        found = speedup((second / 1.5).tolist(), first.tolist())
        covered += found.low <= 1.5 <= found.high
    assert 0.92 <= covered / runs <= 0.98
