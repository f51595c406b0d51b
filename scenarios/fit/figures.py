"""Figures of a fit: quantiles of the data against those of the laws, and the measured distribution beside them."""

from __future__ import annotations

import numpy as np

from analysis.figures.settings import PLAIN
from analysis.figures.style import ShownFigure, finish_figure, line_style, new_figure
from scenarios.fit.estimate import PhaseFit


@PLAIN.apply()
def quantile_figure(fit: PhaseFit) -> ShownFigure:
    """Return the QQ plot of a phase of a class: the complete durations at their Kaplan-Meier positions against each law."""
    figure, (axes,) = new_figure()
    times, survival = fit.durations.survival()
    # Halfway down each step: the largest duration keeps a finite quantile.
    positions = 1.0 - 0.5 * (np.concatenate([[1.0], survival[:-1]]) + survival)
    # At most 200 of the durations, evenly by rank.
    points = np.unique(np.linspace(0, len(times) - 1, 200).astype(int))
    lines = []
    for index, law in enumerate(law for law in fit.laws if law.parameters):
        (line,) = axes.plot(law.quantile(positions[points]), times[points], marker=".", linewidth=1.0, **line_style(index))
        lines.append((line, law.kind + (", chosen" if law is fit.law else "")))
    longest = float(times.max())
    axes.plot([0.0, longest], [0.0, longest], color="#8a8a8a", linewidth=0.8)
    axes.set_xlabel("quantile of the law (s)")
    axes.set_ylabel("measured (s)")
    axes.set_xlim(0.0, 1.5 * longest)
    note = "a law that fits lies on the grey line; durations that were cut off move the positions (Kaplan-Meier)"
    finish_figure(figure, f"{fit.phase}, {fit.group}: laws against data", note, lines)
    return figure


@PLAIN.apply()
def survival_figure(fit: PhaseFit) -> ShownFigure:
    """Return the figure of the probability to exceed a time: the Kaplan-Meier estimate of a phase of a class, and each law."""
    figure, (axes,) = new_figure()
    times, survival = fit.durations.survival()
    (measured,) = axes.step(np.concatenate([[0.0], times]), np.concatenate([[1.0], survival]), where="post", color="#222222")
    lines = [(measured, "measured")]
    probabilities = np.linspace(0.001, 0.995, 400)
    for index, law in enumerate(law for law in fit.laws if law.parameters):
        (line,) = axes.plot(law.quantile(probabilities), 1.0 - probabilities, linewidth=1.2, **line_style(index))
        lines.append((line, law.kind + (", chosen" if law is fit.law else "")))
    axes.set_xlim(0.0, 1.5 * float(times.max()))
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("duration (s)")
    axes.set_ylabel("probability to exceed it")
    finish_figure(figure, f"{fit.phase}, {fit.group}: how long it takes", "measured: Kaplan-Meier estimate", lines)
    return figure
