"""Which units of a deep Gaussian process a posterior couples."""

from typing import NamedTuple

import numpy as np

COUPLINGS = ("mean-field", "stripes-and-arrow", "full")


class Chain(NamedTuple):
    """Hidden units that are coupled to one another and to no other ones, many times over.

    The factor of the covariance of all units of a chain is a dense lower triangular matrix.
    Stripes tie the units with the same number in all layers, one chain for each; if everything is
    coupled, there is one chain of all units.
    """

    layers: tuple  #: the layers it goes through
    units: tuple  #: for each of them (w, u), the `u` units of the layer in each of the `w` chains
    gps: np.ndarray  #: (w, n), indices of its units among the units of all layers


class Pattern:
    """Which blocks of the factor are free, by the widths of hidden layers, and the coupling.

    Outputs are coupled to hidden units, and to each other only through these. For likelihoods that
    factorize over outputs, the best factor has no other blocks.
    """

    def __init__(self, widths, n_outputs, coupling):
        self.widths, self.n_outputs = tuple(widths), n_outputs
        self.first = np.concatenate([[0], np.cumsum(self.widths)]).astype(int)  # GP of each layer
        self.n_hidden = int(self.first[-1])
        self.arrow = coupling != "mean-field" and self.n_hidden > 0
        #: whether outputs covary given the hidden units that a row has met
        self.shares = self.arrow and n_outputs > 1
        layers = range(len(self.widths))
        if coupling == "mean-field":
            parts = [[(layer, np.arange(self.widths[layer])[:, None])] for layer in layers]
        elif coupling == "full":
            parts = [[(layer, np.arange(self.widths[layer])[None]) for layer in layers]]
        else:  # units with the same number form a chain; chains through the same layers go together
            of_unit = range(max(self.widths, default=0))
            through = [tuple(i for i in layers if t < self.widths[i]) for t in of_unit]
            parts = []
            for them in dict.fromkeys(through):
                units = np.flatnonzero([one == them for one in through])[:, None]
                parts.append([(layer, units) for layer in them])
        self.chains = [self._chain(part) for part in parts if part]

    def _chain(self, part):
        layers, units = zip(*part)
        gps = [self.first[layer] + unit for layer, unit in part]
        return Chain(layers, units, np.concatenate(gps, 1))

    def places(self, c, layer):
        """Return the slice of the positions in chain `c` that the units of a layer have."""
        chain = self.chains[c]
        i = chain.layers.index(layer)
        start = sum(units.shape[1] for units in chain.units[:i])
        return slice(start, start + chain.units[i].shape[1])

    def tied(self, layer):
        """The chains that units of a layer are coupled to."""
        if layer == len(self.widths):
            return range(len(self.chains)) if self.arrow else ()
        return [c for c, chain in enumerate(self.chains) if layer in chain.layers]

    def within(self, layer):
        """The blocks that tie units of one hidden layer, chain by chain.

        Yields the chain, its units of the layer (w, u), their places in it, the places (w, a, b) of
        the blocks below the diagonal, and where these are in `Moments.squares`.
        """
        start = self.widths[layer]
        for c in self.tied(layer):
            chain, at = self.chains[c], self.places(c, layer)
            units, w = chain.units[chain.layers.index(layer)], len(chain.gps)
            a, b = np.tril_indices(at.stop - at.start, -1)
            below = np.arange(w)[:, None], (at.start + a)[None], (at.start + b)[None]
            yield c, units, at, below, slice(start, start + w * len(a))
            start += w * len(a)

    def forms(self, layer, c):
        """Units (u, w) of a layer in a chain, and where to find their forms (u, u, w)."""
        for chain, units, _, _, which in self.within(layer):
            if chain == c:
                w, u = units.shape
                places = np.zeros((u, u, w), dtype=int)
                places[np.arange(u), np.arange(u)] = units.T
                a, b = np.tril_indices(u, -1)
                places[a, b] = np.arange(which.start, which.stop).reshape(w, -1).T
                places[b, a] = places[a, b]
                return units.T, places
        raise LookupError((layer, c))

    def shared_forms(self):
        """Return the indices (K, K) of the forms of pairs of outputs, counted from the first of these."""
        places = np.zeros((self.n_outputs, self.n_outputs), dtype=int)
        a, b = np.tril_indices(self.n_outputs)
        places[a, b] = places[b, a] = np.arange(len(a))
        return places

    def order(self, layer):
        """Return the permutation that sorts the units of a layer, which come chain by chain."""
        return np.argsort(
            np.concatenate([self.forms(layer, c)[0].ravel() for c in self.tied(layer)])
        )

    def blocks(self):
        """Rows and columns of all blocks below the diagonal."""
        pairs = []
        for chain in self.chains:
            a, b = np.tril_indices(chain.gps.shape[1], -1)
            pairs.append(np.stack([chain.gps[:, a].ravel(), chain.gps[:, b].ravel()]))
        if self.arrow:
            outputs = self.n_hidden + np.arange(self.n_outputs)
            grid = np.meshgrid(outputs, np.arange(self.n_hidden), indexing="ij")
            pairs.append(np.stack([part.ravel() for part in grid]))
        return np.concatenate(pairs, 1) if pairs else np.zeros((2, 0), dtype=int)
