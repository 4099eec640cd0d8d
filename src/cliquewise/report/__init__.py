"""Reports: progress lines, pictures and tables for people."""
