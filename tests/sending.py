"""Kernels that send a field as it is, by any reducer, for tensors of either frontend."""

import tiga as tg


class Send(tg.MessagePassing):
    """The source's x, by any reducer."""

    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return src.x


class SendWeighted(Send):
    """The source's x times the edge's w, by any reducer."""

    def edge(self, src, dst, edge):
        return edge.w * src.x


class SendEdge(Send):
    """The edge's m, by any reducer."""

    def edge(self, src, dst, edge):
        return edge.m
