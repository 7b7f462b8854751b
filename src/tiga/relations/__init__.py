"""Relations: which source feeds which destination, and how a kernel walks over that. In order:

- `graph` is what users hold: made from `inputs` of `indices`, which `validate` checks.
- A `snapshot` has the topology at one version of them: the sorted `csr`, and a `walk` of its tasks
  from either end. On a GPU this is `on_device`, under torch's compiler `traced`.
- `batch`, `line` and `placed` make graphs from others, by `made`; `statistics` describe one.
- `paged` is a graph in a file: `writer` sorts an edge list into one by way of a `spool`, `store`
  has its format, and `row_blocks` cut it to what fits in memory.
"""

from tiga.relations.batch import GraphBatch as GraphBatch
from tiga.relations.graph import Graph as Graph
from tiga.relations.statistics import DegreeStatistics as DegreeStatistics
from tiga.relations.walk import Walk as Walk
