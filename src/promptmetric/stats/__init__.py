"""Meta-evaluation: how well scores agree with human judgments, and how sure one can be. Numbers in, numbers out."""

from promptmetric.stats.base import Grouping, Missing, Statistic
from promptmetric.stats.bootstrap import Interval
from promptmetric.stats.ceiling import human_ceiling
from promptmetric.stats.correlation import kendall, pairwise_difference_pearson, pearson, spearman
from promptmetric.stats.permutation import Comparison, permutation_test, permutation_tests
from promptmetric.stats.significance import beaten_by, greedy_ranks, holm, p_matrix, pairs_test
from promptmetric.stats.systems import soft_pairwise_accuracy, system_accuracy, system_pearson, system_scores
from promptmetric.stats.ties import (
    accuracy_as_published,
    calibrated_accuracy,
    chance_accuracy,
    pairwise_accuracy,
    tie_rate,
)

__all__ = [
    "Comparison",
    "Grouping",
    "Interval",
    "Missing",
    "Statistic",
    "accuracy_as_published",
    "beaten_by",
    "calibrated_accuracy",
    "chance_accuracy",
    "greedy_ranks",
    "holm",
    "human_ceiling",
    "kendall",
    "p_matrix",
    "pairs_test",
    "pairwise_accuracy",
    "pairwise_difference_pearson",
    "pearson",
    "permutation_test",
    "permutation_tests",
    "soft_pairwise_accuracy",
    "spearman",
    "system_accuracy",
    "system_pearson",
    "system_scores",
    "tie_rate",
]
