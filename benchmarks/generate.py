"""Write the benchmark's events to an Arrow IPC file; `examples.demo.clickstream` generates them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa

from examples.demo.clickstream import generate, space_sizes

__all__ = ["generate", "space_sizes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="where to write the events, as an Arrow IPC file")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    table = generate(args.events, args.seed)
    with pa.OSFile(str(args.output), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    main()
