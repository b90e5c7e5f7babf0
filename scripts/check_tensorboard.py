#!/usr/bin/env python3
"""Opens a folder of event files with the real TensorBoard package and prints its scalars.

    pip install tensorboard
    scripts/check_tensorboard.py logs/ [--expect "lm loss"]...

Exit code 1 if the folder has no scalar, or if an expected tag is missing.
"""
import argparse
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--expect", action="append", default=[], help="a tag that must be there")
    options = parser.parse_args()

    events = EventAccumulator(options.folder, size_guidance={"scalars": 0})  # 0: keep all points
    events.Reload()
    tags = events.Tags()["scalars"]
    for tag in sorted(tags):
        points = events.Scalars(tag)
        first, last = points[0], points[-1]
        print(f"{tag}: {len(points)} points, {first.step}: {first.value:g} .. {last.step}: {last.value:g}")
    missing = [tag for tag in options.expect if tag not in tags]
    if missing:
        print("missing:", ", ".join(missing), file=sys.stderr)
    if not tags:
        print(f"no scalars in {options.folder}", file=sys.stderr)
    return 1 if missing or not tags else 0


if __name__ == "__main__":
    sys.exit(main())
