"""What the graph says: facts about an exported decoder, read from its nodes, without its weights."""
