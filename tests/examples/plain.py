"""What the layers of the examples compute, in plain torch with arrays of one row per edge."""

import math

import torch
from torch.nn import functional as nnf


def total(messages, target, nodes):
    return messages.new_zeros(nodes, *messages.shape[1:]).index_add(0, target, messages)


def mean(messages, target, nodes):
    count = torch.bincount(target, minlength=nodes).clamp(min=1).to(messages.dtype)
    return total(messages, target, nodes) / count.view(-1, *[1] * (messages.dim() - 1))


def extreme(messages, target, nodes, which):
    index = target.view(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
    zeros = messages.new_zeros(nodes, *messages.shape[1:])
    return zeros.scatter_reduce(0, index, messages, which, include_self=False)


def std(messages, target, nodes):
    distance = messages - mean(messages, target, nodes)[target]
    variance = mean(distance**2, target, nodes)
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def softmax(score, value, target, nodes):
    weight = torch.exp(score - extreme(score, target, nodes, "amax").detach()[target])
    weight = weight / total(weight, target, nodes)[target]
    return total(weight.view(*weight.shape, *[1] * (value.dim() - weight.dim())) * value,
                 target, nodes)  # fmt: skip


def gcn(layer, edges, x, scale):
    source, target = edges
    h = layer.linear(x)
    return total((scale[source] * h[source]) * scale[target], target, len(x)) + layer.bias


def sage(layer, edges, x):
    source, target = edges
    return layer.neighbours(mean(x[source], target, len(x))) + layer.own(x)


def gat(layer, edges, x):
    source, target = edges
    h = layer.linear(x).view(-1, layer.heads, layer.outputs)
    score = (h * layer.source).sum(-1)[source] + (h * layer.target).sum(-1)[target]
    return softmax(nnf.leaky_relu(score, 0.2), h[source], target, len(x)).flatten(1)


def gatv2(layer, edges, x):
    source, target = edges
    shape = (-1, layer.heads, layer.outputs)
    h, own = layer.source(x).view(shape)[source], layer.target(x).view(shape)[target]
    score = (nnf.leaky_relu(h + own, 0.2) * layer.attention).sum(-1)
    return softmax(score, h, target, len(x)).flatten(1)


def gin(layer, edges, x):
    source, target = edges
    return layer.mlp((1 + layer.eps) * x + total(x[source], target, len(x)))


def pna(layer, edges, x, scales):
    source, target = edges
    sent, n = torch.relu(layer.source(x)[source] + layer.target(x)[target]), len(x)
    found = torch.cat(
        [mean(sent, target, n), extreme(sent, target, n, "amax"),
         extreme(sent, target, n, "amin"), std(sent, target, n)], dim=1,
    )  # fmt: skip
    scaled = (scales[:, :, None] * found[:, None]).flatten(1)
    return layer.mix(torch.cat([x, scaled], dim=1))


def edgeconv(layer, edges, x):
    source, target = edges
    sent = layer.mlp(torch.cat([x[target], x[source] - x[target]], dim=1))
    return extreme(sent, target, len(x), "amax")


def continuous_filter(layer, edges, h, r):
    source, target = edges
    distance = (r[source] - r[target]).norm(dim=1, keepdim=True)
    waves = torch.exp(-layer.sharpness * (distance - layer.centres) ** 2)
    fade = 0.5 * (torch.cos(distance * torch.pi / layer.cutoff) + 1) * (distance < layer.cutoff)
    weights = layer.filter(nnf.softplus(layer.hidden(waves)) - math.log(2))
    return total(h[source] * weights * fade, target, len(h))


def pair_energy(layer, edges, kind, position):
    source, target = edges
    distance = (position[source] - position[target]).norm(dim=1, keepdim=True)
    waves = torch.exp(-layer.sharpness * (distance - layer.centres) ** 2)
    kinds = layer.kinds(kind)
    mixed = torch.tanh(layer.hidden(waves)) * kinds[source] * kinds[target]
    return total(0.5 * layer.energy(mixed), target, len(kind))
