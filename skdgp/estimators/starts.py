"""Where training starts: new members, those of the last fit, those of another estimator."""

import numpy as np
from sklearn.exceptions import NotFittedError

from .._warnings import warn
from ..inference.base import Architecture
from ..mixture.member import Member
from ..training import init as initialization

_SAMPLE_ROWS = 10_000  #: rows from which starting values are found
_FAR = 100.0  #: standard deviations of the last fit that a warm start may not reach


def warn_if_far(data):
    """Of a warm start that goes on with the scaling of the last fit."""
    scaler = data.y_scaler
    if not scaler.standardize:
        return
    mean = np.average(data.y, axis=0, weights=data.weights)
    if (np.abs(mean - scaler.center) > _FAR * scaler.scale).any():
        warn(
            "The targets lie far from those of the last fit, in whose units a warm start goes on, and may "
            "never be reached; set warm_start=False to start anew.",
            UserWarning,
        )


class StartsMixin:
    """Members and their models before training."""

    def _start(self, plan, data, rng, pretraining, source=None):
        """A member of the shape that the parameters ask for, and its model before training."""
        member = self._new_member(plan, data, rng, source)
        model = member.build()
        init = self.init if "init" in plan.scheme.uses else "kmeans"
        if source is not None:
            self._go_on(model, source, plan)
        elif not isinstance(init, str):
            initialization.hand_over(self._init_source().members_, member, model)
        else:
            X, y, weights = data.sample(_SAMPLE_ROWS, rng)
            if init == "greedy":  # which takes as many random numbers as it needs
                seed = int(rng.randint(2**31 - 1))
                rng = np.random.RandomState(seed)
                pretraining.trainer = lambda: self._trainer([model], data, [plan], seed)
                pretraining.most = self.max_iter or pretraining.most
            with pretraining:
                initialization.start(model, X, weights, init, rng, y, pretraining.train)
            if init == "greedy":  # no traces of the pre-training
                state, model = model.state(), member.build()
                state.pop("progress", None)
                model.load_state(state)
        if source is None and getattr(model, "variance_inflation", None) is not None:
            self._learn_inflation(model, plan, data, rng, pretraining)
        return member, model

    def _go_on(self, model, source, plan):
        """Give a model the state of the last fit, which may have had other settings of the scheme."""
        try:
            model.load_state(model.translated(source.arrays, source.scheme))
        except RuntimeError:  # torch's, of names and shapes
            raise ValueError(
                "warm_start=True goes on with the model of the last fit, which was trained by "
                f"{source.scheme!r} and does not fit {plan.scheme!r}; set warm_start=False to start anew."
            ) from None

    def _init_source(self):
        """The fitted estimator whose state is the start; None if there is none."""
        if isinstance(self.init, str):
            return None
        init_source = getattr(self.init, "estimator", self.init)  # of a FrozenEstimator
        if not isinstance(init_source, StartsMixin):
            raise ValueError(
                f"init must be an estimator of skdgp; got {type(init_source).__name__}."
            )
        if not hasattr(init_source, "members_"):
            raise NotFittedError(
                "The estimator given as init is not fitted. Copies made by clone, as in a search, forget "
                "the fit unless it is wrapped in sklearn.frozen.FrozenEstimator."
            )
        if init_source.n_features_in_ != self.n_features_in_:
            raise ValueError(
                f"The estimator given as init was fitted with {init_source.n_features_in_} features, X has "
                f"{self.n_features_in_}."
            )
        return init_source

    def _scale(self, data, likelihood, init_source, rng):
        data.scale(self.standardize, likelihood.scales_target, rng)
        if init_source is not None:
            init_source._hand_scaling_to(data)
        elif self.standardize == "warp" or (self.standardize == "auto" and self._warps()):
            data.warp(likelihood)

    def _warps(self):
        """Whether columns may be warped if the user leaves it open."""
        return False

    def _hand_scaling_to(self, data):
        both = data.y_scaler.standardize and self._y_scaler.standardize
        data.scale_as(self._x_scaler, self._y_scaler if both else data.y_scaler)

    def _new_member(self, plan, data, rng, old):
        scheme, likelihood = plan.scheme, plan.likelihood
        _, y, weights = data.sample(_SAMPLE_ROWS, rng)
        self._check_likelihood(likelihood, data.y)
        bound = likelihood.bind(y, weights, data.y_scaler.scale)
        n_features = len(data.x_scaler.columns)
        n_classes = self._n_classes()
        n_inducing = plan.n_inducing or scheme.n_inducing(len(data), n_classes)
        n_inducing = min(int(n_inducing), len(data))
        n_latents = likelihood.n_latents(n_classes or data.y.shape[1])
        architecture = Architecture(
            n_features,
            plan.widths(n_features),
            n_latents,
            n_inducing,
            [],
            self.mean == "linear",
            bool(self.input_connected),
        )
        if old is None:
            architecture.kernels = plan.kernels(
                architecture, data.x_scaler.columns, self.n_features_in_
            )
            return Member(scheme, architecture, bound, plan.mixture_weight)
        for name in ("widths", "n_latents", "linear_mean", "input_connected"):
            if getattr(architecture, name) != getattr(old.architecture, name):
                raise ValueError(
                    "warm_start=True goes on with the model of the last fit, so n_layers, width, mean, "
                    "input_connected, likelihood and the classes must stay as they were."
                )
        return Member(scheme, old.architecture, old.likelihood, plan.mixture_weight)
