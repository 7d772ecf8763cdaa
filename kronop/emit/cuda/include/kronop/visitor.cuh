// Visitor trees: epilogues with additional operands and results.
//
// A rendered tree is a functor that is called for each sum. It reads operand i with `at.operand(i)`
// and writes result i with `at.keep(i, value)`. Operands and results are strided matrices; a stride
// of 0 broadcasts a row or a column.
#pragma once

#include "numeric.cuh"

namespace kronop {

template <class... Items>
struct Types {
  static constexpr int kCount = int(sizeof...(Items));
};

// Calls visit.template operator()<Item, kIndex>() for each type.
template <int kIndex = 0, class Visit>
KRONOP_INLINE void for_each_type(Types<>, const Visit&) {}
template <int kIndex = 0, class Item, class... Items, class Visit>
KRONOP_INLINE void for_each_type(Types<Item, Items...>, const Visit& visit) {
  visit.template operator()<Item, kIndex>();
  for_each_type<kIndex + 1>(Types<Items...>{}, visit);
}

// An item of each type.
template <class... Items>
struct Each {
  // Never called. NVRTC looks it up in lambdas that are never instantiated.
  template <int kIndex>
  int& at() const;
};
template <class Item, class... Items>
struct Each<Item, Items...> {
  Item own;
  Each<Items...> others;

  template <int kIndex>
  KRONOP_INLINE auto& at() {
    if constexpr (kIndex == 0) {
      return own;
    } else {
      return others.template at<kIndex - 1>();
    }
  }
  template <int kIndex>
  KRONOP_INLINE const auto& at() const {
    if constexpr (kIndex == 0) {
      return own;
    } else {
      return others.template at<kIndex - 1>();
    }
  }
};

// What is reduced: the elements of each row, or of each column.
enum class Axis { kRow, kColumn };

struct Sum {
  template <class T>
  KRONOP_INLINE static T join(T a, T b) {
    return a + b;
  }
  template <class T>
  KRONOP_INLINE static T none() {
    return T(0);
  }
};
struct Maximum {
  template <class T>
  KRONOP_INLINE static T join(T a, T b) {
    return math::max(a, b);
  }
  // Minus infinity.
  template <class T>
  KRONOP_INLINE static T none() {
    const T large = T(sizeof(T) == 4 ? 1e38 : 1e308);
    return -large * large;
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
KRONOP_INLINE constexpr bool any_reduced(Types<Items...>) {
  return (is_reduced<Items> || ...);
}

}  // namespace detail

// The base of every rendered tree.
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

}  // namespace kronop
