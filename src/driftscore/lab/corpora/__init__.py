"""Corpora: datasets of labelled clips and noises, where they are stored, how they are downloaded."""
