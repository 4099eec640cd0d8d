"""Chains: whole epochs run inside kernels."""
