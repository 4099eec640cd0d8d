"""Alias of `cliquewise.estimators.tagger.chain_tagger.ChainTagger`, kept for existing imports."""

from cliquewise.estimators.tagger.chain_tagger import ChainTagger as Predictor

__all__ = ["Predictor"]
