"""The families of operators: each registers its own, and gives it its public functions."""
