"""Several devices and processes: mesh, collectives, batch shards, bytes sent, process group."""
