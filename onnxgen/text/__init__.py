"""Text: tokens, chat templates, streamed text.

Reads the files that come with a Hugging Face model, and gives what transformers 4.57 gives for
them: the same ids, the same text, the same prompts. Knows nothing of graphs.
"""
