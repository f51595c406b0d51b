"""Options of a learner and parameters of its methods: names, types, bounds, defaults, meaning. No torch."""
