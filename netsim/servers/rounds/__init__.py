"""Parts of rounds that all servers share: the loop, dispatch of models, rules for the close, reports, and instruments."""
