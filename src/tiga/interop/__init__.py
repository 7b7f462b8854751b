"""Ways to use Tiga from other libraries; each module loads the library that it is about.

- `tiga.interop.pyg`: layers of PyTorch Geometric.
"""
