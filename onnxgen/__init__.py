"""onnxgen: generate with exported ONNX models; the graph says how."""
