"""One server in several processes: who looks after them, how they reach each other, what they ask each other."""
