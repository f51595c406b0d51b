"""Run, sweep, resume and replay: scenarios in, folders of results out."""
