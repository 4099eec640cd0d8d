"""GDMM on sets of labels that all interact."""
