"""Training of the embedded model `mini`: see `training.rebuild` for the steps."""
