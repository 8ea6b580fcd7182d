"""Suites over sets of human judgments: our prompts and established metrics, run on the same samples."""
