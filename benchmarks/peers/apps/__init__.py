"""One file for each queue. They import nothing of Stoker and run in the environment of the peers, as scripts."""
