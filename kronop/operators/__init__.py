"""Linear operators that are made of small matrices: Kronecker products, sums, and what follows.

Importing this package imports none of them: `kronop.KroneckerOperator` and the others are found
when they are first used.
"""
