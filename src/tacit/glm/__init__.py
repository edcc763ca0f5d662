"""Generalized linear models: links, losses and their maximum likelihood; knows nothing of privacy."""
