"""Speech to text by Whisper: prompts, windows, and audio of any length."""
