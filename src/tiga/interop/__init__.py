"""Ways to use Tiga from other libraries; each module loads the library that it is about.

- `tiga.interop.pyg`: layers of PyTorch Geometric.
- `tiga.interop.torch`: help for torch's compiler and export.
"""
