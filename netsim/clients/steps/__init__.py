"""Steps of an update: transfer of the model, local training, access to the uplink, transfer of the update."""
