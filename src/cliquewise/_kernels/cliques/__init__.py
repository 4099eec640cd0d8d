"""Cliques of pairwise graphs: scores, ascent, repair."""
