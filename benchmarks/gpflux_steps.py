"""Steps of GPflux's deep Gaussian process, for an interpreter that has GPflux.

It needs other versions of numpy than the rest, so that it runs in a process of its own: for each line
that it reads, it makes one step and writes a line.
"""

import json
import os
import sys

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import gpflow
import gpflux
import numpy as np
import tensorflow as tf
from gpflux.helpers import (
    construct_basic_inducing_variables,
    construct_basic_kernel,
    construct_mean_function,
)


def model_of(X, widths, n_inducing):
    """Layers like those of GPflux's own architecture, but of any widths."""
    rng = np.random.default_rng(0)
    layers, H = [], X
    for i, width in enumerate(widths):
        last = i == len(widths) - 1
        n = H.shape[1]
        kernel = gpflow.kernels.SquaredExponential(
            lengthscales=[2.0] * n, variance=1.0 if last else 1e-6
        )
        Z = construct_basic_inducing_variables(
            n_inducing, n, share_variables=True, z_init=H[rng.permutation(len(H))[:n_inducing]]
        )
        mean = gpflow.functions.Zero() if last else construct_mean_function(H, n, width)
        layer = gpflux.layers.GPLayer(
            construct_basic_kernel(kernel, output_dim=width, share_hyperparams=True),
            Z,
            N_ROWS,
            mean_function=mean,
        )
        if not last:
            layer.q_sqrt.assign(1e-5 * layer.q_sqrt)
            H = np.asarray(mean(H))
        layers.append(layer)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflux.models.DeepGP(layers, gpflux.layers.LikelihoodLayer(likelihood), num_data=N_ROWS)


def step_function(model, X, y):
    """One step of Adam, as a compiled graph without the overhead of Keras' loop."""
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    variables = model.trainable_variables

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = -model.elbo((X, y))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    return step


if __name__ == "__main__":
    shape = json.loads(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gpflow.config.set_default_float(getattr(np, shape["dtype"]))
    N_ROWS = shape["n_rows"]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape["batch"], shape["n_features"])).astype(shape["dtype"])
    y = rng.standard_normal((shape["batch"], shape["widths"][-1])).astype(shape["dtype"])
    tf.keras.backend.set_floatx(shape["dtype"])
    step = step_function(model_of(X, shape["widths"], shape["n_inducing"]), X, y)
    for _ in sys.stdin:
        assert np.isfinite(step().numpy())
        print(flush=True)
