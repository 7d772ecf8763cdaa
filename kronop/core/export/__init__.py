"""Operations as C libraries that need no Python: recorded launches, and the C around them."""
