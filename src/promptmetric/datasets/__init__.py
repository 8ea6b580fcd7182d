"""Sets of human judgments: public formats in, one `EvalSet` out."""

from promptmetric.datasets.catalogue import SetSpec, known_sets
from promptmetric.datasets.evalset import EvalSet, Judged
from promptmetric.datasets.load import SetReport, load_set, verify_set
from promptmetric.datasets.register import add_set, remove_set
from promptmetric.datasets.scores import MetricScores, read_scores

__all__ = [
    "EvalSet",
    "Judged",
    "MetricScores",
    "SetReport",
    "SetSpec",
    "add_set",
    "known_sets",
    "load_set",
    "read_scores",
    "remove_set",
    "verify_set",
]
