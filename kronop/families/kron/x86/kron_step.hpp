// Constants that follow from the plan of a Kronecker matmul: the extents of its passes, its digits;
// and the packing of their factors.
#pragma once

#include "sweep.hpp"

namespace kronop::kron {

// The numbers of factors, digits and passes.
template <class Decided>
struct DigitStep : Decided {
  static constexpr int kFactors = count_of(Decided::kFactorRows),
                       kDigits = count_of(Decided::kContracted);
};
template <class Decided>
struct PassStep : DigitStep<Decided> {
  static constexpr int kPasses = count_of(Decided::kPassKind);
};

// The extents of a pass over one row: `contracted` before the pass is `produced` after it. The
// input of the pass has `pad` unused elements after every run of `trail`.
struct Extents {
  index_t lead, contracted, produced, trail, pad;
};

// Constants that follow from the plan, computed by the compiler.
template <class Step>
struct Tables {
  Extents pass[Step::kPasses];
  index_t panel[Step::kDigits];
  index_t panels;

  constexpr Tables() : pass(), panel(), panels() {
    index_t size[Step::kDigits] = {}, offset = 0;
    for (int digit = 0; digit < Step::kDigits; ++digit) {
      size[digit] = Step::kContracted[digit];
      panel[digit] = offset;
      offset +=
          panel_elements(Step::kContracted[digit], Step::kProduced[digit], Step::kPanel[digit]);
    }
    panels = offset;
    for (int p = 0, first = 0; p < Step::kPasses; first = Step::kPassEnd[p++]) {
      pass[p] = extents(size, first, Step::kPassEnd[p]);
      pass[p].pad = Step::kPad[p];
      for (int i = first; i < Step::kPassEnd[p]; ++i)
        size[Step::kOrder[i]] = Step::kProduced[Step::kOrder[i]];
    }
  }

 private:
  static constexpr Extents extents(const index_t* size, int first, int end) {
    int least = Step::kOrder[first], most = least;
    for (int i = first; i < end; ++i) {
      least = Step::kOrder[i] < least ? Step::kOrder[i] : least;
      most = Step::kOrder[i] > most ? Step::kOrder[i] : most;
    }
    Extents result{1, 1, 1, 1, 0};
    for (int digit = 0; digit < least; ++digit) result.lead *= size[digit];
    for (int digit = least; digit <= most; ++digit) {
      result.contracted *= size[digit];
      result.produced *= Step::kProduced[digit];
    }
    for (int digit = most + 1; digit < Step::kDigits; ++digit) result.trail *= size[digit];
    return result;
  }
};

template <class Step>
inline constexpr Tables<Step> kTables{};

// Entry (p, q) of a digit, which is the Kronecker product of one or more neighbouring factors.
template <class Step, class Parameters>
KRONOP_INLINE typename Step::Compute digit_entry(const Parameters& parameters,
                                                 const index_t* offsets, int digit, index_t p,
                                                 index_t q) {
  using Compute = typename Step::Compute;
  Compute product = Compute(1);
  for (int f = Step::kDigitFactor[digit + 1] - 1; f >= Step::kDigitFactor[digit]; --f) {
    const index_t row = p % Step::kFactorRows[f], column = q % Step::kFactorColumns[f];
    p /= Step::kFactorRows[f];
    q /= Step::kFactorColumns[f];
    const auto* data =
        static_cast<const typename Step::Element*>(parameters.factors[f]) + offsets[f];
    const auto entry = convert<Compute>(
        data[row * parameters.factor_row[f] + column * parameters.factor_column[f]]);
    product = f == Step::kDigitFactor[digit + 1] - 1 ? entry : product * entry;
  }
  return product;
}

// Packs the factors, or one of `shares` parts of each.
template <class Step, class Parameters>
void pack_factors(const Parameters& parameters, const index_t* offsets,
                  typename Step::Compute* panels, index_t share, index_t shares) {
  using Compute = typename Step::Compute;
  for (int digit = 0; digit < Step::kDigits; ++digit) {
    Compute* to = panels + kTables<Step>.panel[digit];
    const int first = Step::kDigitFactor[digit];
    if (Step::kDigitFactor[digit + 1] - first == 1) {
      const auto* data =
          static_cast<const typename Step::Element*>(parameters.factors[first]) + offsets[first];
      const index_t row = parameters.factor_row[first], column = parameters.factor_column[first];
      pack_panels(
          to, Step::kContracted[digit], Step::kProduced[digit], Step::kPanel[digit], share, shares,
          [&](index_t p, index_t q) { return convert<Compute>(data[p * row + q * column]); });
    } else {
      pack_panels(to, Step::kContracted[digit], Step::kProduced[digit], Step::kPanel[digit], share,
                  shares, [&](index_t p, index_t q) {
                    return digit_entry<Step>(parameters, offsets, digit, p, q);
                  });
    }
  }
}

// The planner's choice for the product at kIndex of all passes.
template <class Step, int kIndex>
using DigitOf =
    Digit<Step::kContracted[Step::kOrder[kIndex]], Step::kProduced[Step::kOrder[kIndex]],
          Step::kTileRows[Step::kOrder[kIndex]], Step::kTileVectors[Step::kOrder[kIndex]],
          Step::kTileWidth[Step::kOrder[kIndex]], Step::kUnroll[Step::kOrder[kIndex]],
          Step::kInPlace[kIndex] != 0>;

// Padding after every run that the next pass reads.
template <class Step, int kPass>
inline constexpr index_t kPadAfter = [] {
  if constexpr (kPass + 1 < Step::kPasses) {
    return index_t(Step::kPad[kPass + 1]);
  } else {
    return index_t(0);
  }
}();

}  // namespace kronop::kron
