"""What came out: opens run folders, compares runs, draws figures. Reads result files only."""
