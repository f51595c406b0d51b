"""Models of the world, of policies and of the learner: laws of time, of channels and of presence, privacy, selection policies
and (under `models.fl`, the only place that imports torch) federated learning. No simulated time passes here."""
