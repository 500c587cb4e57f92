"""Which units of a deep Gaussian process a posterior couples."""

from typing import NamedTuple

import numpy as np

COUPLINGS = ("mean-field", "stripes-and-arrow", "full")


class Chain(NamedTuple):
    """Hidden units that are coupled to one another and to no other ones, `w` times over.

    The factor of the covariance of all units of a chain is a dense lower triangular matrix.
    """

    gps: np.ndarray  #: (w, n), indices of its units among the units of all layers
    layers: tuple  #: (n,), the layer of each, in order

    def at(self, layer):
        """Positions of the units of a layer."""
        start = self.layers.index(layer)
        return slice(start, start + self.layers.count(layer))

    def before(self, layer):
        """Earlier layers that it goes through."""
        return [i for i in dict.fromkeys(self.layers) if i < layer]


class Part(NamedTuple):
    """The units of a hidden layer that belong to one chain."""

    chain: int
    at: slice  #: their positions in the chain
    units: np.ndarray  #: (w, u), their numbers in the layer
    pairs: tuple  #: positions in the chain of all pairs, the second one before the first
    which: slice  #: where these are in `Moments.squares`
    forms: np.ndarray  #: (u, u, w), where all units and pairs are there


class Pattern:
    """Which blocks of the factor are free, by the widths of hidden layers, and the coupling.

    Stripes tie the units with the same number in all layers, one chain for each; if everything is
    coupled, there is one chain of all units. Outputs are coupled to hidden units, and to each other only
    through these. For likelihoods that factorize over outputs, the best factor has no other blocks.
    """

    def __init__(self, widths, n_outputs, coupling):
        self.widths, self.n_outputs = tuple(widths), n_outputs
        self.first = np.concatenate([[0], np.cumsum(self.widths)]).astype(int)  # GP of each layer
        self.n_hidden = int(self.first[-1])
        self.outputs = self.n_hidden + np.arange(n_outputs)
        self.arrow = coupling != "mean-field" and self.n_hidden > 0
        #: whether outputs covary given the hidden units that a row has met
        self.shares = self.arrow and n_outputs > 1
        units = [(layer, unit) for layer, width in enumerate(widths) for unit in range(width)]
        coupled, alike = {}, {}
        for gp, (layer, unit) in enumerate(units):
            key = {"mean-field": gp, "stripes-and-arrow": unit, "full": 0}[coupling]
            coupled.setdefault(key, []).append((gp, layer))
        for pairs in coupled.values():  # those through the same layers go together
            gps, layers = zip(*pairs)
            alike.setdefault(layers, []).append(gps)
        self.chains = [Chain(np.array(gps), layers) for layers, gps in alike.items()]
        #: of each hidden layer, chain by chain
        self.parts = [list(self._parts(layer)) for layer in range(len(self.widths))]

    def _parts(self, layer):
        start = self.widths[layer]
        for c, chain in enumerate(self.chains):
            if layer in chain.layers:
                at = chain.at(layer)
                units = chain.gps[:, at] - self.first[layer]
                (w, u), (a, b) = units.shape, np.tril_indices(units.shape[1], -1)
                which = slice(start, start + w * len(a))
                forms = np.zeros((u, u, w), dtype=int)
                forms[range(u), range(u)] = units.T
                forms[a, b] = forms[b, a] = np.arange(which.start, which.stop).reshape(w, -1).T
                yield Part(c, at, units, (at.start + a, at.start + b), which, forms)
                start = which.stop

    def shared_forms(self):
        """Indices (K, K) of the forms of pairs of outputs, counted from the first of these."""
        places = np.zeros((self.n_outputs, self.n_outputs), dtype=int)
        a, b = np.tril_indices(self.n_outputs)
        places[a, b] = places[b, a] = np.arange(len(a))
        return places

    def blocks(self):
        """Rows and columns of all blocks below the diagonal."""
        pairs = [np.zeros((2, 0), dtype=int)]
        for chain in self.chains:
            a, b = np.tril_indices(chain.gps.shape[1], -1)
            pairs.append(np.stack([chain.gps[:, a].ravel(), chain.gps[:, b].ravel()]))
        if self.arrow:
            grid = np.meshgrid(self.outputs, np.arange(self.n_hidden), indexing="ij")
            pairs.append(np.stack([part.ravel() for part in grid]))
        return np.concatenate(pairs, 1)
