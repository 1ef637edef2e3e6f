"""One server in several processes: the supervisor, the connections between processes, and their questions."""
