// Included before any header of CUTLASS 3.x: makes CUTLASS 4.2 and 4.8 compile with NVRTC 13.0 to
// 13.5, whose CCCL versions differ. KRONOP_CUTLASS_VERSION is 402 or 408.
#pragma once

#include <cuda/std/tuple>
#include <cuda/std/type_traits>

#if defined(__CUDACC_RTC__)
// Parts of the standard library that Hopper's builders use and NVRTC lacks.
namespace std {
template <class T>
inline constexpr bool is_pointer_v = cuda::std::is_pointer_v<T>;
template <class T>
inline constexpr bool is_const_v = cuda::std::is_const_v<T>;
template <class... Any>
using void_t = cuda::std::void_t<Any...>;
template <class T>
__device__ constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
}  // namespace std
#endif

#include <cute/config.hpp>

#include <cute/numeric/integer_sequence.hpp>

#if defined(__CUDACC_RTC__) && KRONOP_CUTLASS_VERSION < 408
// If defined, std::tuple_size and std::tuple_element are declared with other template parameters
// than CCCL's from 3.2 on. They are declared here after CuTe's tuples.
#undef CUTE_STL_NAMESPACE_IS_CUDA_STD
#include <cute/container/tuple.hpp>
namespace std {
template <class... Any>
struct tuple_size<cute::tuple<Any...>> : cuda::std::integral_constant<size_t, sizeof...(Any)> {};
template <class... Any>
struct tuple_size<const cute::tuple<Any...>>
    : cuda::std::integral_constant<size_t, sizeof...(Any)> {};
template <size_t kIndex, class... Any>
struct tuple_element<kIndex, cute::tuple<Any...>>
    : cuda::std::tuple_element<kIndex, cuda::std::tuple<Any...>> {};
template <size_t kIndex, class... Any>
struct tuple_element<kIndex, const cute::tuple<Any...>>
    : cuda::std::tuple_element<kIndex, const cuda::std::tuple<Any...>> {};
}  // namespace std
#endif

namespace cute {
// CCCL 3.5 has such a function for sequences too; these overloads are better matches.
template <size_t kIndex, int... kNumbers>
CUTE_HOST_DEVICE constexpr auto get(integer_sequence<int, kNumbers...>) {
  return tuple_element_t<kIndex, integer_sequence<int, kNumbers...>>{};
}
template <size_t kIndex, size_t... kNumbers>
CUTE_HOST_DEVICE constexpr auto get(integer_sequence<size_t, kNumbers...>) {
  return tuple_element_t<kIndex, integer_sequence<size_t, kNumbers...>>{};
}
}  // namespace cute
