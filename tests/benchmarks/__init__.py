"""How fast pyjobs is, next to its peers and to a floor: README.md says how to run it, and how to add to it.

Nothing is imported here: parts of this package run in the environments of the peers.
"""
