"""Builds the demo model: a GGUF file's weights as an ONNX decoder in the Hugging Face layout."""
