"""Graphs: variables and factors, evidence, builders, spanning trees."""
