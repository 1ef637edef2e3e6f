"""The journal's records, their codec, and the events that readers see."""
