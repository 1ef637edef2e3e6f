"""A broker that is somewhere else: a server, reached over one of its transports."""
