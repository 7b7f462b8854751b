"""One file per family of cases, each with its `CASES`."""
