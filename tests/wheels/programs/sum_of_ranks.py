"""The smallest collective program: each rank adds its number, and prints the sum of all ranks.

`--without=RANK`: that one ends with 3 instead, which the others meet as a broken connection.
"""

import sys

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
if f"--without={dist.get_rank()}" in sys.argv:
    sys.exit(3)
total = paddle.to_tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum is {float(total.numpy()[0]):g}", flush=True)
