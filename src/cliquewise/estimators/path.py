"""Alias of `cliquewise.estimators.tagger.regularization_path`, kept for existing imports."""

from cliquewise.estimators.tagger.regularization_path import regularization_path

__all__ = ["regularization_path"]
