"""The sections of a report on the privacy that a mechanism guarantees."""

from __future__ import annotations

from analysis.documents.blocks import Section, Text
from analysis.results.groups import Groups
from analysis.results.run import Run


def guarantee(run: Run) -> str:
    """Return what the privacy mechanism of a run guarantees, as the run states it."""
    return str((run.summary.get("privacy") or {}).get("guarantee") or "none: nothing is protected.")


def guarantee_sections(groups: Groups) -> list[Section]:
    """Return the section on the guarantee of each variant; empty where no run has privacy."""
    if not any(run.has_privacy for runs in groups.values() for run in runs):
        return []
    guarantees: dict[str, list[str]] = {}
    for label, runs in groups.items():
        texts = list(dict.fromkeys(map(guarantee, runs)))
        # Amounts spent differ by chance between seeds; the guarantee itself does not.
        further = f" (Seed {runs[0].seed}; other seeds differ in what was spent.)" if len(texts) > 1 else ""
        guarantees.setdefault(texts[0] + further, []).append(label)
    return [Section("Privacy guarantee", [Text(text, lead=f"{'; '.join(labels)}:") for text, labels in guarantees.items()])]
