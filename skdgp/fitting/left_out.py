"""Rows that are left out, or held out, together."""

import numpy as np


def held_groups(groups, n_held, labels, rng):
    """Positions of the rows of whole groups, in random order up to about `n_held` rows; sorted.

    At least one group stays, and so does a group whose rows are the last ones of a class, by `labels` (n,) or
    None; there may be no others.
    """
    names, code = np.unique(groups, return_inverse=True)
    sizes, held, size = np.bincount(code), np.zeros(len(names), dtype=bool), 0
    left = None
    if labels is not None:
        classes, label = np.unique(labels, return_inverse=True)
        counts = np.zeros((len(names), len(classes)), dtype=np.int64)
        np.add.at(counts, (code, label), 1)
        left = counts.sum(0)
    for i in rng.permutation(len(names))[: len(names) - 1]:
        more = sizes[i]
        if size and size + 0.5 * more > n_held:
            continue
        if left is not None:
            if ((left == counts[i]) & (counts[i] > 0)).any():
                continue
            left = left - counts[i]
        held[i], size = True, size + more
        if size >= n_held:
            break
    return np.flatnonzero(held[code])
