"""Records of a run: sinks of rows, and the tables and Parquet files that they fill. Row types are in `netsim.core.rows`."""
