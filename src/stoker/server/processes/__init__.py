"""One server in several processes: their supervisor, their connections, and what they ask each other."""
