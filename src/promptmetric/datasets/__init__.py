"""Sets of human judgments: public formats in, one `EvalSet` out."""
