"""Backends for graphs: distributions over cliques."""
