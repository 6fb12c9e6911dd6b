"""Where the embedded model comes from: see `training.rebuild`."""
