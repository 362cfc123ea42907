"""Builds the tiny models of fixtures/models; runs in the oracle environment of make_fixtures.py."""
