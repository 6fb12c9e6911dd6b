"""Parts shared by the model families that run as ONNX graphs; not a family itself.

`log_mel` is the front end, `tokenizer` the text input, `graph` and `bert` write ONNX graphs, and
`sessions` runs them.
"""
