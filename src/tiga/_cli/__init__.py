"""The commands of `python -m tiga`, one file each: `add_arguments(parser)` and `run(options)`."""
