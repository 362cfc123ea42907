"""What the graph says: facts about an exported decoder, from its nodes, without its weights."""
