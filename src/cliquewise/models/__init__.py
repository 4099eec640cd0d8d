"""Models: linear maps from weights to potentials, and their adjoints."""
