"""Where claims are measured: datasets, noises, mixing and metrics (`driftscore[lab]`)."""
