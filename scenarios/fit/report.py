"""The report of a fit, as one HTML file: laws, figures, the predictive check and the hold-out."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.documents.blocks import Block, Bullets, Code, Document, Picture, Section, Table, Text
from analysis.documents.html import html_page, inline_svg
from analysis.figures.style import svg_text
from scenarios.fit.durations import Estimate
from scenarios.fit.estimate import Estimates, PhaseFit
from scenarios.fit.figures import quantile_figure, survival_figure
from scenarios.fit.prediction import Prediction
from scenarios.fit.presence import FittedPresence


def report_html(estimates: Estimates, text: str, check: Sequence[Prediction], hold_out: Sequence[Prediction], seeds: int) -> str:
    """Return the report as one HTML page.

    `text`: the fitted scenario as TOML. `check`, `hold_out`: predictions with `seeds` seeds; empty: without the section.
    """
    log = estimates.log
    sections = [Section("What is doubtful", [Bullets(estimates.cautions) if estimates.cautions else Text("Nothing was found.")])]
    for fit in estimates.phases.values():
        for part in (fit, *fit.later):
            since = f", from round {part.first_round}" if part.first_round > 1 else ""
            sections.append(Section(f"{part.phase}, {part.group}{since}", _phase_blocks(part)))
    if estimates.links:
        sections.append(Section("Bandwidth", [_bandwidth_table(estimates)]))
    if estimates.presence is not None:
        sections.append(Section("Presence", _presence_blocks(estimates.presence)))
    if estimates.losses:
        sections.append(Section("Losses", [_loss_table(estimates)]))
    if check:
        sections.append(Section("Predictive check", _prediction_blocks("check", check, seeds, "all rounds of the log")))
    if hold_out:
        rounds = "the last 30 % of the rounds, predicted from the first 70 %"
        sections.append(Section("Hold-out", _prediction_blocks("hold-out", hold_out, seeds, rounds)))
    sections.append(Section("Scenario", [Code(text, "toml")]))
    lead = f"{len(log.rows):,} durations of {len(log.names)} clients in {len(log.classes)} classes, {log.rounds} rounds."
    document = Document(f"Fit of {log.source}", lead, sections)
    return html_page(document, _svg)


def _svg(picture: Picture) -> str:
    """Return a figure of the report as inline SVG."""
    return inline_svg(svg_text(picture.figure), picture.name, picture.caption, picture.figure.description)


def _phase_blocks(fit: PhaseFit) -> list[Block]:
    """Return the blocks of a report on one phase of one class: tables of the estimates, and the figure."""
    cut = 100 * fit.durations.censored_share
    blocks: list[Block] = [Text(f"{fit.durations.number:,} durations, {cut:.1f} % cut off.")]
    if fit.speed is not None:
        speed = fit.speed
        rows = [
            ["overhead (s)", *_estimate_cells(speed.overhead_s)],
            ["seconds per sample or byte", *_estimate_cells(speed.seconds_per_unit)],
            ["sigma of the noise", *_estimate_cells(speed.sigma)],
        ]
        cells = (["parameter", "value", "from", "to"], rows)
        blocks.append(Table(f"speed-{fit.phase}-{_name_suffix(fit)}", "Time by amount", cells, "95 % intervals"))
    rows = []
    for law in fit.laws:
        # The empirical law has quantiles in place of parameters, and no criterion of Akaike.
        parameters = ", ".join(f"{key} = {value.value:.4g}" for key, value in law.parameters.items())
        aic = "" if law.values_s else f"{law.aic:.1f}"
        texts = [parameters or f"{len(law.values_s)} quantiles", aic, f"{law.deviation:.3f}", f"{100 * law.beyond:.1f}"]
        rows.append([law.kind, *texts])
    header = ["law", "parameters", "AIC", "largest deviation", "beyond the log (%)"]
    note = "The first law is used. Deviation: largest distance to the measured distribution. Beyond the log laws extrapolate."
    name = f"laws-{fit.phase}-{_name_suffix(fit)}"
    blocks.append(Table(name, "Laws", (header, rows), note, words=(0, 1)))
    if len(fit.laws) > 1:
        for draw, quantity in ((survival_figure, "durations"), (quantile_figure, "quantiles")):
            name = f"{quantity}-{fit.phase}-{_name_suffix(fit)}"
            blocks.append(Picture(name, f"{fit.phase}, {fit.group}: {quantity}", draw(fit)))
    return blocks


def _name_suffix(fit: PhaseFit) -> str:
    """Return the end of the names of a class's tables and figures: the class, and the first round after a change."""
    name = fit.group if fit.first_round == 1 else f"{fit.group} {fit.first_round}"
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _estimate_cells(estimate: Estimate) -> list[str]:
    """Return three cells of a table: an estimate, and the ends of its interval."""
    return [f"{number:.4g}" for number in (estimate.value, estimate.low, estimate.high)]


def _bandwidth_table(estimates: Estimates) -> Table:
    """Return the table of the laws of bandwidth that were fitted to each link and class."""
    rows = []
    for fit in estimates.links.values():
        for law in fit.laws:
            values = ", ".join(f"{key} = {value.value:.4g}" for key, value in law.parameters.items()) or "as measured"
            aic = f"{law.aic:.1f}" if law.freedom else ""
            rows.append([f"{fit.link}, {fit.group}", f"{law.number:,}", law.label, values, aic])
    header = ["link", "rates", "law", "parameters", "AIC"]
    note = "The first law of a link is used. Stays are in seconds, levels in bytes/s."
    return Table("bandwidth", "Laws of bandwidth", (header, rows), note, words=(0, 2, 3))


def _loss_table(estimates: Estimates) -> Table:
    """Return the table of the shares of lost transmissions, with the chosen law."""
    rows = []
    for loss in estimates.losses.values():
        law = loss.laws[0]
        parameters = ", ".join(f"{key} = {value:.4g}" for key, value in law.parameters.items())
        share = [f"{100 * value:.2f}" for value in (law.lost.value, law.lost.low, law.lost.high)]
        rows.append([f"{loss.phase}, {loss.group}", f"{law.number:,}", *share, law.kind, parameters])
    header = ["transmissions", "number", "lost (%)", "from", "to", "law", "parameters"]
    return Table("losses", "Shares of lost transmissions", (header, rows), "95 % intervals (Wilson)", words=(0, 5, 6))


def _presence_blocks(presence: FittedPresence) -> list[Block]:
    """Return the blocks of the report on presence."""
    uses = {"trace": "they are replayed", "markov": "exponential times on and off", "diurnal": "shares by the hour of the day"}
    blocks: list[Block] = [Text(f"{presence.number:,} intervals; {presence.kind}: {uses[presence.kind]}.")]
    if presence.parameters:
        rows = [[name, *_estimate_cells(estimate)] for name, estimate in presence.parameters.items()]
        blocks.append(Table("presence", "Times on and off", (["parameter", "value", "from", "to"], rows), "95 % intervals"))
    if presence.kind == "diurnal":
        rows = [[str(hour), f"{100 * share:.1f}"] for hour, share in enumerate(presence.table["by_hour"])]
        blocks.append(Table("presence", "Present clients by hour", (["hour", "share (%)"], rows)))
    return blocks


def _prediction_blocks(name: str, predictions: Sequence[Prediction], seeds: int, rounds: str) -> list[Block]:
    """Return the verdict and the table of a predictive check. `rounds`: the rounds that it predicts, for the note."""
    outside = [prediction.name for prediction in predictions if not prediction.agrees]
    verdict = f"Outside of their bands: {', '.join(outside)}." if outside else "Every measured figure lies in its band."
    rows = []
    for prediction in predictions:
        numbers = (prediction.measured, prediction.simulated, prediction.low, prediction.high)
        rows.append([prediction.name, *(f"{number:.4g}" for number in numbers), "yes" if prediction.agrees else "no"])
    header = ["figure", "measured", "simulated", "from", "to", "in the band"]
    note = f"{rounds}; the fitted scenario with {seeds} seeds; the band holds 95 % of further seeds"
    return [Text(verdict, warning=bool(outside)), Table(name, "Measured and simulated", (header, rows), note, words=(0, 5))]
