"""Trainers as users write them: one class, jobs in, updates out."""

from __future__ import annotations

import numpy as np
import torch

from models.fl.training.own_training import Trained


class Descent:
    """Plain gradient descent over the planned batches, as the built-in sgd does it."""

    def __init__(self, *, rate: float = 0.1):
        self.rate = rate
        self.calls: list[list[int]] = []

    def train(self, jobs):
        self.calls.append([job.client for job in jobs])
        return [self.one(job) for job in jobs]

    def one(self, job):
        values, data, losses = dict(job.parameters), job.data, []
        for batch in data.batches:
            leaves = {name: values[name].detach().requires_grad_() for name in data.trained}
            each = data.loss(data.scores(values | leaves, data.x[batch]), data.y[batch])
            slopes = torch.autograd.grad(each.mean(), list(leaves.values()))
            pairs = zip(leaves.items(), slopes, strict=True)
            values |= {name: (leaf - self.rate * slope).detach() for (name, leaf), slope in pairs}
            losses.append(each.detach())
        return Trained(parameters=values, samples=sum(map(len, data.batches)), losses=torch.cat(losses)[: len(data.x)])


class Unhurried(Descent):
    """Trains when its results are needed."""

    eager = False


class Remembering:
    """Moves every parameter by the number of jobs that the client has done before; keeps that number."""

    eager = False

    def train(self, jobs):
        results = []
        for job in jobs:
            done = 0 if job.state is None else job.state["jobs"]
            moved = {name: value + float(done) for name, value in job.parameters.items()}
            results.append(Trained(parameters=moved, samples=1, state={"jobs": done + 1, "rounds": np.array([job.round])}))
        return results


class UntilGood(Descent):
    """Trains as many passes, up to 5, as a draw of its client and round says: only training tells how long that takes."""

    eager = True

    def one(self, job):
        passes = int(job.generator.integers(1, 6))
        samples = steps = 0
        parameters = job.parameters
        for _ in range(passes):
            result = super().one(job.__class__(**{**vars(job), "parameters": dict(parameters)}))
            parameters, samples, steps = result.parameters, samples + result.samples, steps + len(job.data.batches)
        done = 0 if job.state is None else job.state
        return Trained(parameters=parameters, samples=samples, losses=result.losses, steps=steps, state=done + 1)


class Short(Descent):
    def train(self, jobs):
        return super().train(jobs)[:-1]


class Pairs(Descent):
    def one(self, job):
        return job.parameters, 3


class Uncountable(Descent):
    def one(self, job):
        return Trained(parameters=job.parameters, samples=0.5)


class Unsaveable(Descent):
    def one(self, job):
        return Trained(parameters=job.parameters, samples=1, state=torch.zeros(2))


class NoTrain:
    eager = False
