"""kronop: Kronecker-structured operations, described, planned, emitted, compiled and run."""
