"""Tests of `esformat.customerio`."""
