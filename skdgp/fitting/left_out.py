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


def last_groups(groups, n_held, labels):
    """Positions of the rows of the last groups, about `n_held` rows; sorted.

    At least one group is held out and the first one stays, and so do groups with the first rows of a class, by
    `labels` (n,) or None; there may be no others.
    """
    names, sizes = np.unique(groups, return_counts=True)
    later = np.cumsum(sizes[::-1])[:-1]  # rows of the last groups, by their number
    n = int(np.argmin(np.abs(later - n_held))) + 1 if len(later) else 0
    start = names[len(names) - n] if n else np.inf
    if labels is not None:
        first = max(groups[labels == label].min() for label in np.unique(labels))
        start = start if start > first else np.append(names[names > first], np.inf)[0]
    return np.flatnonzero(groups >= start)
