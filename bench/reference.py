"""Measures the reference in float64 on one core: CPU seconds and memory of forward attention.

python3 -m bench.reference [--seqlen 4096] [--nhead 32] [--hdim 128] [--limits]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from qola_base.formats import BF16
from qola_lab.reference.attention import Attention, Sequence, forward
from qola_lab.reference.blas import one_thread
from qola_lab.reference.limits import Arithmetic, forward_with_limits


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seqlen", type=int, default=4096, help="rows of Q and of K")
    parser.add_argument("--nhead", type=int, default=32, help="heads of Q and of K")
    parser.add_argument("--hdim", type=int, default=128, help="head dimension")
    parser.add_argument(
        "--limits", action="store_true", help="also compute the limits of errors, as qola verify"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((args.seqlen, args.nhead, args.hdim)) for _ in range(3))
    attention, sequence = Attention(args.hdim**-0.5), Sequence(q, k, v)
    before = time.process_time()
    with one_thread():
        if args.limits:
            forward_with_limits(attention, sequence, Arithmetic(BF16, BF16))
        else:
            forward(attention, sequence)
    seconds = time.process_time() - before
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{seconds:.1f} CPU seconds, {megabytes:.0f} MB")


if __name__ == "__main__":
    main()
