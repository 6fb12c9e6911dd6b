"""Parts shared by the model families that run as ONNX graphs; not a family itself.

`log_mel` has the front ends, `graph` writes ONNX graphs, `external_data` checks the graphs of
others, and `sessions` runs them and reads texts.
"""
