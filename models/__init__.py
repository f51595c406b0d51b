"""What the world, the policies and the learner compute: laws of time, of channels and of presence, privacy, selection policies
and (under `models.fl`, the only place that imports torch) federated learning. No simulated time passes here."""
