"""One file per figure or table of the papers: prints, plots, and says what agrees."""
