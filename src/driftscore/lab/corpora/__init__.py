"""Corpora: datasets and noises, where they are stored and how they are downloaded."""
