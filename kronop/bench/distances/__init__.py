"""Problems of points against points, as benchmarks see them: work, checks, other libraries."""
