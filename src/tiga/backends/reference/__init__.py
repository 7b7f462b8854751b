"""The oracle: every op by its numpy reference, one after another, edges and all."""

from tiga.backends.reference.evaluate import EdgeList, evaluate

__all__ = ["EdgeList", "evaluate"]
