// Visitor trees: epilogues with additional operands and results, and how one is applied to a run of
// neighbouring results.
//
// A rendered tree is a functor that is called for each sum. It reads operand i with `at.operand(i)`
// and writes result i with `at.keep(i, value)`. Operands and results are strided matrices; a stride
// of 0 broadcasts a row or a column.
#pragma once

#include "kronop_x86/transfer.hpp"

namespace kronop {

template <class... Items>
struct Types {
  static constexpr int kCount = int(sizeof...(Items));
};

// Calls visit.template operator()<Item>(index) for each type.
template <class... Items, class Visit>
KRONOP_INLINE void for_each_type(Types<Items...>, const Visit& visit) {
  int index = 0;
  (visit.template operator()<Items>(index++), ...);
  (void)index;
}

// What is reduced: the elements of each row, or of each column.
enum class Axis { kRow, kColumn };

struct Sum {
  template <class T>
  KRONOP_INLINE static T join(T a, T b) {
    return a + b;
  }
};
struct Maximum {
  template <class T>
  KRONOP_INLINE static T join(T a, T b) {
    return math::max(a, b);
  }
};

// Takes the place of a result's element type: the reduction's operator and axis.
template <class Join, Axis kAxis>
struct Reduced {};

namespace detail {

template <class T>
inline constexpr bool is_reduced = false;
template <class Join, Axis kAxis>
inline constexpr bool is_reduced<Reduced<Join, kAxis>> = true;
template <class... Items>
constexpr bool any_reduced(Types<Items...>) {
  return (is_reduced<Items> || ...);
}

}  // namespace detail

// The base class of rendered trees.
template <class T, class OperandTypes, class ResultTypes>
struct Visitor {
  using Compute = T;
  using Operands = OperandTypes;
  using Results = ResultTypes;
  static constexpr int kOperands = Operands::kCount, kResults = Results::kCount;
};

template <class Epilogue>
concept Visits = requires { typename Epilogue::Results; };

// Whether an epilogue is a tree with a reduction.
template <class Epilogue>
inline constexpr bool kReduces = false;
template <Visits Epilogue>
inline constexpr bool kReduces<Epilogue> = detail::any_reduced(typename Epilogue::Results{});

// Up to kMost neighbouring results of a row, with the operands and results of the tree there.
template <class Epilogue, int kMost>
class VisitedRun {
 public:
  using Compute = typename Epilogue::Compute;

  // Reads operand `index` from `from` on; its elements are `column` apart.
  template <class Element>
  KRONOP_INLINE void read(int index, const Element* from, index_t column, index_t count) {
    Compute* to = operands_[index];
    if (column) return load_run(to, from, column, count);
    const Compute same = convert<Compute>(*from);
    for (index_t i = 0; i < count; ++i) to[i] = same;
  }

  template <class Sums>
  KRONOP_INLINE void compute(const Epilogue& epilogue, const Sums* sums, index_t count) {
    KRONOP_INDEPENDENT
    for (index_t i = 0; i < count; ++i) epilogue(convert<Compute>(sums[i]), At{*this, i});
  }

  // Writes result `index` to `to`; its elements are `column` apart.
  template <class Element>
  KRONOP_INLINE void write(int index, Element* to, index_t column, index_t count) const {
    const Compute* from = kept_[index];
    if (column != 1) {
      for (index_t i = 0; i < count; ++i) to[i * column] = convert<Element>(from[i]);
    } else if (count == kMost) {
      convert_run<kMost, kWidth>(to, from);
    } else {
      for (index_t i = 0; i < count; ++i) to[i] = convert<Element>(from[i]);
    }
  }

  // The values of one result, in the tree's compute type.
  const Compute* kept(int index) const { return kept_[index]; }

 private:
  static constexpr int kWidth = kMost % 8 ? 1 : 8;
  // What the functor gets as `at`, for element i of the run.
  struct At {
    VisitedRun& run;
    index_t i;
    KRONOP_INLINE Compute operand(int index) const { return run.operands_[index][i]; }
    KRONOP_INLINE void keep(int index, Compute value) const { run.kept_[index][i] = value; }
  };

  alignas(64) Compute operands_[Epilogue::kOperands + 1][kMost];
  alignas(64) Compute kept_[Epilogue::kResults][kMost];
};

// Combines `count` values, at most kMost, in an order that depends on their number alone:
// vectorised if there are kMost values.
template <class Join, int kMost, class T>
KRONOP_INLINE T join_run(const T* values, index_t count) {
  constexpr int kWidth = kMost % 8 ? 1 : 8;
  T lanes[kWidth] = {values[0]};
  int width = 1;
  index_t done = 1;
  if (count == kMost) {
    Vector<T, kWidth> joined = load<T, kWidth>(values);
    for (int i = kWidth; i < kMost; i += kWidth)
      joined = Join::join(joined, load<T, kWidth>(values + i));
    store(lanes, joined);
    width = kWidth, done = kMost;
  }
  for (; done < count; ++done) lanes[0] = Join::join(lanes[0], values[done]);
  for (int half = width / 2; half > 0; half /= 2) {
    for (int c = 0; c < half; ++c) lanes[c] = Join::join(lanes[c], lanes[c + half]);
  }
  return lanes[0];
}

}  // namespace kronop
