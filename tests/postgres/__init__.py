"""The log in PostgreSQL: schema, seats, one seat in use, and what may befall it."""
