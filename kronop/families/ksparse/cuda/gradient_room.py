"""A `gradient_warp_group` block: its tile of results, its warp groups, its shared memory."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.cuda import operands
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.frozen import dataclass, derived
from kronop.target import Target

TEAM, TEAM_ROWS = 128, 64
# 16-bit elements of a line of 128 bytes, and lines that a team copies at once.
LINE, _TEAM_LINES = 64, 16
# (registers of a copying thread, of a multiplying thread) for (multiplying teams, copying teams):
# all threads share 65536. With one multiplying team, registers stay as ptxas assigns them (0).
# NOTE: measured: a second copying team never costs time; with three multiplying teams, there are
# not enough registers for one.
REGISTERS = {(1, 2): (0, 168), (2, 2): (64, 192), (3, 1): (104, 136)}
# Registers of addresses and loops, besides the sums; and the most sums of a thread.
_OTHERS, _MOST_SUMS = 40, 128
# The most indices q of a block, and of one with four teams. NOTE: a kernel with MMAs of 256 starts
# with more than 128 registers a thread under ptxas 13.0, too many for four teams.
_MOST_WIDE, _MOST_WIDE_OF_FOUR = 256, 192
# Most copies of a thread for one stage: ptxas 13.0 spills the addresses of more.
_MOST_COPIES = 24
_BARRIER = 8


@dataclass(frozen=True, kw_only=True)
class GradientRoom(GradientSums):
    """A block's tile of results and its stages.

    Attributes:
        teams: multiplying warp groups, each with its own indices p.
        team_p: indices p of a team, in units of 64.
        q: indices q of a block, which all teams share.
        k: rows of a stage.
        stages: stages of X and G in shared memory, being copied or in use.
        copiers: warp groups that copy X and G to shared memory.
    """

    teams: int
    team_p: int
    q: int
    k: int
    stages: int
    copiers: int

    def __str__(self) -> str:
        block = f"{self.p} x {self.q} x {self.k}, {self.stages} stages"
        return f"{block}, {self.teams} teams, {self.copiers} of copies"

    @property
    def p(self) -> int:
        return TEAM_ROWS * self.team_p * self.teams

    @property
    def threads(self) -> int:
        return (self.teams + self.copiers) * TEAM

    @derived
    def products(self) -> int:
        """How many independent gradients of b x c there are."""
        a, _, _, d = self.work.pattern
        return self.work.lead * a * d

    @property
    def lanes(self) -> int:
        """How many lanes are separated first; 1 if operands are read in place."""
        return 1 if self.work.by_rows else self.work.pattern[3]

    @derived
    def stage_bytes(self) -> int:
        """Bytes of a stage, padded to whole lines, or to a multiple of the lines that all copiers
        copy at once."""
        multiple = self.copiers * _TEAM_LINES if self.work.by_rows else LINE
        padded = sum(operands.round_up(size, multiple) for size in (self.p, self.q))
        return padded * self.k * self.work.element.bytes

    @property
    def shared_bytes(self) -> int:
        """Stages and barriers."""
        barriers = operands.round_up(2 * self.stages * _BARRIER, operands.VECTOR_BYTES)
        return self.stages * self.stage_bytes + barriers

    def status(self, target: Target) -> Status:
        if (self.teams, self.copiers) not in REGISTERS:
            return Status.reject(
                f"{self}: expected one of {sorted(REGISTERS)} teams that multiply and that copy"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"{self} wants {self.shared_bytes} bytes of shared memory, {target.shared_bytes}"
                " are there; use a smaller threadblock_shape or fewer stages"
            )
        copies = self.stage_bytes // (self.copiers * TEAM * operands.VECTOR_BYTES)
        if copies > _MOST_COPIES:
            return Status.reject(
                f"{self} has {copies} copies of a thread for a stage, more than it has registers"
                " for; use a smaller Tile_K"
            )
        sums = self.team_p * self.q // 2
        widest = _MOST_WIDE if self.threads < 512 else _MOST_WIDE_OF_FOUR
        most = min(_MOST_SUMS, REGISTERS[self.teams, self.copiers][1] - _OTHERS)
        if sums > most or self.q > widest:
            return Status.reject(
                f"{self} has {sums} sums of a thread and {self.q} columns, at most {most} and"
                f" {widest}; use a smaller threadblock_shape"
            )
        return Status.accept()
