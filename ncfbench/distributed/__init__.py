"""Several devices and processes: layout, collectives, batch shards, process group."""
