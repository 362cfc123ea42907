"""Audio: recordings to waveforms, waveforms to what speech models read.

What is computed equals what transformers 4.57 computes. Knows nothing of graphs.
"""
