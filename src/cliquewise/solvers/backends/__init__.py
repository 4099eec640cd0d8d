"""What the algorithms ask of one kind of problem. One file per kind."""
