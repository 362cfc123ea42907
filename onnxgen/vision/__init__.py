"""Images: files, bytes and arrays to RGB pictures, pictures to what a model's graph takes.

Gives what the slow image processors of transformers 4.57 give for a model's
``preprocessor_config.json``. Knows nothing of graphs; Pillow comes with the extra ``vision``.
"""
