"""Dynamic programs on directed acyclic hypergraphs."""
