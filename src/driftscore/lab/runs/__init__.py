"""Runs: a grid comes in, rows in a store go out, resumable and the same on any number of workers.

A grid is checked and planned, its conditions are embedded, its cells scored, its rows stored. It
may import the library through its public names and the rest of the lab, except the report.
"""
