"""A broker in another process: a server, reached over one of its transports."""
