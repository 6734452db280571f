"""Data generation: episodes of a policy, written as a dataset, resumable and in any number of processes.

`plan` says which episodes there are, `play` plays them, `parts` keeps the finished ones on disk, `crew` shares them out
among Ray workers, one file per format writes the dataset, and `recording` ties these together.
"""

FORMATS = ("clips", "minari", "lerobot")
LOCAL = "local"  # Ray is started on this machine, instead of joining a cluster
