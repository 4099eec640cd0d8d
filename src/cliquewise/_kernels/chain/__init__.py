"""Chains: dynamic programming and the epochs of the solvers."""
