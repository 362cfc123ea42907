"""What runs: sessions of ONNX Runtime, buffers on the device, caches from step to step."""
