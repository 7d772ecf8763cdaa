"""The templates of sm_90a and every style of their tiles, in the words of plans.py."""

from __future__ import annotations

_ORDERS = ("X by own", "X by rows", "X by lanes", "Y by own", "Y by rows", "Y by lanes")
STYLES = {
    "kron_tile": ("plain", "few rows"),
    "kron_mma": (
        *("plain", "split", "half", "single", "pairs", "staged", "in memory", "staged in"),
        *("staged out", "grouped", "cluster", "buffers", "merged", "few rows"),
    ),
    "contract_tiles": ("kron", "ksparse", *_ORDERS, "lanes", "few rows"),
    "contract_mma": ("kron", "ksparse", *_ORDERS, "lanes", "plain", "split", "along k", "few rows"),
    "contract_group": (
        *(*_ORDERS, "resident", "images", "stages", "teams along rows", "teams along lanes"),
        *("teams along outputs", "lanes", "halves", "packs", "plain", "split", "few rows"),
    ),
    "pack_weights": ("plain", "few rows"),
    "pack_images": ("plain", "few rows"),
    "move_lanes": ("apart", "together"),
    "chain_mma": (*_ORDERS, "resident", "stages", "plain", "split", "lanes", "few rows"),
    "ksparse_gradient": ("along", "across", "lanes", "tied", "apart", "plain", "split"),
    "gradient_group": ("1 teams", "2 teams", "3 teams", "along", "across", "moved"),
    "add_shares": ("slices", "whole"),
    "factor_gradients": ("plain",),
}
