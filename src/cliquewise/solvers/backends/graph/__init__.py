"""Graphs: distributions over cliques."""
