"""Values that both sides share: ids, states, options, limits, commands, replies, errors.

Nothing in here behaves. The engine, the journal, every transport and every client speak in these
words, so an option exists once and cannot get lost between two layers.
"""
