"""Alias of `cliquewise.estimators.tagger.sequence_tagger`, kept for existing imports."""

from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

__all__ = ["SequenceTagger"]
