"""The protocol without sockets: frames, commands, replies. Both ends use it; neither end is known here."""
