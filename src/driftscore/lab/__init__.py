"""Where claims are measured: corpora, mixing, metrics, grids and reports (`driftscore[lab]`)."""
