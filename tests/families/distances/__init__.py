"""Random distances, products of kernel matrices and gradients of distances, against float64."""
