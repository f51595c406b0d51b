"""One run: run, resume, replay and ask "what if", and the folder of its results."""
