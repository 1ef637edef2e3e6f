"""Whatever carries out the commands of the contract: the engine in this process, a server, Redis."""
