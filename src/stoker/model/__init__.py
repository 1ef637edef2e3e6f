"""Values that all layers share: ids, states, options, limits, commands, replies, errors.

They have no behaviour. The engine, the journal, every transport and every client use these types, so an option is
defined once and cannot get lost between two layers.
"""
