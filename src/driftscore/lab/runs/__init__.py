"""Runs: a grid is planned, its conditions are embedded, its cells scored, its rows stored."""
