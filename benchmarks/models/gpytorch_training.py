"""What GPyTorch's models share: Adam on minibatches of the bound."""

import gpytorch
import torch

N_STEPS = 2000
BATCH_SIZE = 1000
LEARNING_RATE = 0.01
DTYPE = torch.float32  #: GPyTorch's own default


def tensors(*arrays, dtype=DTYPE):
    """Arrays as tensors of the precision in which GPyTorch works by default."""
    return [torch.as_tensor(array, dtype=dtype) for array in arrays]


def minibatches(X, y, n_steps, generator):
    """Random batches; every pass visits the rows in a new order."""
    made = 0
    while True:
        for rows in torch.randperm(len(X), generator=generator).split(min(BATCH_SIZE, len(X))):
            if made == n_steps:
                return
            if len(rows) == min(BATCH_SIZE, len(X)):
                made += 1
                yield X[rows], y[rows]


def stepper(model, likelihood, objective):
    """A function that makes one step of Adam; draws once for each row."""
    model.train()
    likelihood.train()
    modules = (model, likelihood)
    parameters = {id(p): p for m in modules for p in m.parameters() if p.requires_grad}
    optimizer = torch.optim.Adam(parameters.values(), lr=LEARNING_RATE)

    def step(X, y):
        with gpytorch.settings.num_likelihood_samples(1):
            optimizer.zero_grad()
            loss = -objective(model(X), y)
            loss.backward()
            optimizer.step()

    return step
