"""GDMM on chains: active labels and pairs."""
