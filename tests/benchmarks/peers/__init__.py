"""One adapter a peer, run by ../host.py or ../host.mjs in the peer's own environment; ../catalogue.py lists them."""
