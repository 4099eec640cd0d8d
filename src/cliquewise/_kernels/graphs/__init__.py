"""Inference on one factor graph."""
