"""The sequence tagger: `SequenceTagger` trains a chain CRF, `ChainTagger` predicts with it."""
