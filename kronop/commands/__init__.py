"""The commands of `python -m kronop`: a module each, with `configure` and `execute`."""
