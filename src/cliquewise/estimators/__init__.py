"""Estimators: what users touch, with scikit-learn's conventions."""
