"""Kernels that the other packages share."""
