"""What can happen: the journal's records, their codec, and the events that they mean to readers."""
