"""Relations: which source feeds which destination, and how a kernel walks over that."""

from tiga.relations.batch import GraphBatch as GraphBatch
from tiga.relations.graph import Graph as Graph
from tiga.relations.statistics import DegreeStatistics as DegreeStatistics
from tiga.relations.walk import Walk as Walk
