"""Alias of `cliquewise.estimators.tagger.predictor`, kept for existing imports."""

from cliquewise.estimators.tagger.predictor import Predictor

__all__ = ["Predictor"]
