"""Reducers as data: identity, lift, combine, finalize and the facts that fusion relies on."""
