"""Where values come from: the fact about an op that places its values in walks and kernels."""

from enum import Enum


class Origin(Enum):
    """What the value of a node is made from, declared by the node's op."""

    OPERANDS = "within each entity, from its operands"
    NUMBER = "one number, known when the program is made"
    ARGUMENT = "an argument of the program"
    GLOBAL = "a global value, given to every entity"
    END = "a value of the node at one end of each edge"
    DEGREE = "the number of edges at each node"
    POSITION = "the position of each edge"
    CARRY = "what a scan carries to each edge along its row"
    ROW = "what a loop over its edges leaves at each row"
    TOTAL = "the sum of a value over all entities"
    OUTER = "a sum over all entities of what several of their values make together"
