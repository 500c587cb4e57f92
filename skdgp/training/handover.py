"""The state of one model as the start of another."""

import numpy as np

from ..gp.component import hyperparameters
from ..gp.kernels import Kernel

#: roles of parameters that another model need not have
_MAY_DIFFER = "noise", "progress", "scale"


def hand_over(members, wanted, model):
    """Start a model with the state of another one of the same shape, perhaps by another scheme.

    The member that is most like the new model gives its state. Hyperparameters of the likelihood
    are handed over if both have them; with other noise, the latents of the functions. A covariance
    that units share goes to each of them; of several, a shared one becomes the mean. Raises
    ValueError if kernels or shapes do not fit, or only one of the two posteriors couples layers.
    """
    source = min(members, key=lambda member: _distance(member, wanted))
    arrays, roles = _without_scales(source.arrays, model), _roles(model)
    own_roots, given_roots = (
        {name for name, role in of.items() if role == "posterior_root"}
        for of in (roles, _roles(source.build()))
    )
    if own_roots and given_roots and not own_roots & given_roots:  # of all layers together
        raise ValueError(
            "init cannot hand over posteriors between StructuredVI, which has one for all layers together, "
            "and schemes with one for each layer; it was to go from "
            f"{type(source.scheme).__name__} to {type(wanted.scheme).__name__}."
        )
    own_kernels, given_kernels = (m.architecture.kernels for m in (wanted, source))
    as_many = len(own_kernels) == len(given_kernels)  # layers, else they are what does not fit
    if as_many and _kinds(own_kernels) != _kinds(given_kernels):
        raise ValueError(
            "init must be an estimator whose first model of this kind has the same kernels; they are "
            f"{own_kernels} here, and {given_kernels} there."
        )
    state, last = model.state(), f"layers.{len(wanted.architecture.widths)}."
    for name, own in state.items():
        given = arrays.get(name)
        is_posterior = roles[name] in ("posterior", "posterior_root")
        if given is not None and is_posterior and name.startswith(last):
            given = _leading_latents(given, own)
        if given is not None and roles[name] == "posterior_root" and len(own) != len(given):
            given = model.get_submodule(name.rpartition(".")[0]).root_from(given)
        if given is not None and given.shape == own.shape:
            state[name] = given
        elif roles[name] not in _MAY_DIFFER:
            raise ValueError(
                "init must be an estimator whose first model of this kind has the same layers, widths, "
                "numbers of inducing inputs and, by StructuredVI, coupling; "
                f"{name!r} has shape {own.shape} here, and "
                f"{'is missing' if given is None else given.shape} there."
            )
    model.load_state(state)


def _without_scales(arrays, model):
    """State of a model with scales of hidden units for one without: processes have the same means."""
    arrays = dict(arrays)
    for i, layer in enumerate(getattr(model, "layers", ())):
        log_scale = arrays.get(f"layers.{i}.log_scale")
        if log_scale is None or layer.scales() is not None:
            continue
        largest, names = log_scale.max(), [f"layers.{i}.{name}" for name in ("q.mean", "q.root")]
        variance = f"layers.{i}.kernel.log_variance"
        if variance in arrays and set(names) <= set(arrays):
            scales = np.exp(log_scale - largest)
            arrays[variance] = arrays[variance] + 2.0 * largest
            arrays[names[0]] = arrays[names[0]] * scales
            if len(arrays[names[1]]) == len(scales):
                arrays[names[1]] = arrays[names[1]] * scales[:, None, None]
    return arrays


def _roles(model):
    """Roles of all that the state of a model holds."""
    return {one.name: one.role for one in hyperparameters(model, buffers=True)}


def _leading_latents(given, own):
    """`given` with as many latents as `own`: those of noise follow those of functions."""
    axis = 1 if given.ndim == 2 else 0  # a mean (M, latents), or roots (latents, M, M)
    n = min(given.shape[axis], own.shape[axis])
    part = (slice(None),) * axis + (slice(n),)
    if given.shape[axis] == own.shape[axis] or given[part].shape != own[part].shape:
        return given
    new = own.copy()
    new[part] = given[part]
    return new


def _distance(member, wanted):
    """Compare a member with the wanted one: by shape, then by kernels, then by scheme."""
    a, b = member.architecture, wanted.architecture
    same = [
        a.widths == b.widths and a.n_latents == b.n_latents,
        _kinds(a.kernels) == _kinds(b.kernels),
        a.n_inducing == b.n_inducing,
        repr(member.scheme) == repr(wanted.scheme),
        type(member.scheme) is type(wanted.scheme),
    ]
    return [not part for part in same]


def _kinds(kernels):
    """Classes of kernels, shapes of what they learn, and settings that they do not learn."""
    found = []
    for kernel in kernels:
        learned = {name.replace(".", "__"): np.shape(v) for name, _, v in kernel.hyperparameters()}
        others = {
            name: type(value) if isinstance(value, Kernel) else value
            for name, value in kernel.get_params().items()
            if name not in learned and not name.endswith("trainable")
        }
        found.append((type(kernel), learned, others))
    return found
