"""What is chosen: options, the loop, stopping, results. Knows logits, not where they come from."""
