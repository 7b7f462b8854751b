"""Tests of what only part of the package needs are left out where that is not installed."""

from importlib.util import find_spec

NEEDS = {
    "test_pyg*.py": "torch_geometric",
    "test_row_products.py": "triton",
    "test_torch_devices.py": "triton",
    "test_triton_*.py": "triton",
}
collect_ignore_glob = [files for files, package in NEEDS.items() if find_spec(package) is None]
