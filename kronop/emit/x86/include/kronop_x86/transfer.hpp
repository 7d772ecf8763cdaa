// Copies blocks of strided memory to and from the state, an [element][kLanes] array of the compute
// type.
//
// A lane is one of kLanes fibers; element g of its fiber is g strides further in memory. The
// contiguous direction is copied in whole vectors; if that is along the fibers, blocks are
// transposed in registers.
#pragma once

#include "kronop_x86/simd.hpp"

// NOTE: GCC unrolls short loops before it vectorises, and then finds no loop to vectorise.
#if defined(__clang__)
#define KRONOP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define KRONOP_INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

namespace kronop {

// The indices (of `count`) of the lanes of a block: lane i is index first + i. The lanes in [begin,
// end) are this block's own: the last block overlaps the previous one. If there are fewer than
// kLanes indices in all, the last one is repeated.
struct Block {
  index_t first, begin, end;
};

KRONOP_INLINE Block lane_block(index_t index, index_t count, int lanes) {
  const index_t start = index * lanes;
  if (start + lanes <= count) return {start, 0, lanes};
  if (count < lanes) return {0, 0, count};
  return {count - lanes, start - (count - lanes), lanes};
}

// Offsets of the lanes in elements; if `contiguous`, only the first one is set.
template <int kLanes>
struct Lanes {
  index_t offset[kLanes];
  bool contiguous;
};

// Lane i is index = first + i, at (index / inner) * outer_stride + (index % inner) * inner_stride.
template <int kLanes>
KRONOP_INLINE void place_lanes(Lanes<kLanes>& lanes, const Block& block, index_t inner,
                               index_t outer_stride, index_t inner_stride) {
  const bool whole = block.end == kLanes;
  lanes.contiguous =
      whole && (inner == 1 ? outer_stride == 1 : (outer_stride == inner && inner_stride == 1));
  index_t outer_index = block.first / inner, inner_index = block.first % inner;
  const index_t used = lanes.contiguous ? 1 : block.end;
  index_t place = 0;
  for (index_t i = 0; i < used; ++i) {
    lanes.offset[i] = place = outer_index * outer_stride + inner_index * inner_stride;
    if (++inner_index == inner) inner_index = 0, ++outer_index;
  }
  for (index_t i = used; i < kLanes && !lanes.contiguous; ++i) lanes.offset[i] = place;
}

// NOTE: copies vector by vector, because GCC compiles a longer memcpy to a call or a string
// instruction.
template <int kCount, int kWidth, class T>
KRONOP_INLINE void copy_run(T* __restrict to, const T* __restrict from) {
  constexpr int kPiece = kCount % kWidth ? 1 : kWidth;
  for (int i = 0; i < kCount; i += kPiece) store(to + i, load<T, kPiece>(from + i));
}

// Converts eight floats from or to half precision, rounding to nearest even, where one instruction
// does it.
#if defined(__F16C__)
template <class To, class From>
inline constexpr bool kConvertsEight =
    (detail::is_same<To, float> && detail::is_same<From, half_t>) ||
    (detail::is_same<To, half_t> && detail::is_same<From, float>);
KRONOP_INLINE void convert_eight(float* to, const half_t* from) {
#if defined(__clang__) && !__has_builtin(__builtin_ia32_vcvtph2ps256)
  // NOTE: Clang 22 has dropped the builtin, and emits the instruction for this conversion.
  store(to, __builtin_convertvector(load<_Float16, 8>(reinterpret_cast<const _Float16*>(from)),
                                    Vector<float, 8>));
#else
  store(to, __builtin_ia32_vcvtph2ps256(load<short, 8>(reinterpret_cast<const short*>(from))));
#endif
}
KRONOP_INLINE void convert_eight(half_t* to, const float* from) {
  store(reinterpret_cast<short*>(to), __builtin_ia32_vcvtps2ph256(load<float, 8>(from), 0));
}
#elif defined(__aarch64__)
// NOTE: GCC 12 vectorises a loop over float(__fp16), but not one over __fp16(float).
template <class To, class From>
inline constexpr bool kConvertsEight = detail::is_same<To, half_t> && detail::is_same<From, float>;
KRONOP_INLINE void convert_eight(half_t* to, const float* from) {
  for (int i = 0; i < 8; i += 4) {
    Vector<short, 4> halves;
    asm("fcvtn %0.4h, %1.4s" : "=w"(halves) : "w"(load<float, 4>(from + i)));
    store(to + i, halves);
  }
}
#else
template <class To, class From>
inline constexpr bool kConvertsEight = false;
template <class To, class From>
void convert_eight(To* to, const From* from);
#endif

template <int kCount, int kWidth, class To, class From>
KRONOP_INLINE void convert_run(To* __restrict to, const From* __restrict from) {
  if constexpr (detail::is_same<To, From>) {
    copy_run<kCount, kWidth>(to, from);
  } else if constexpr (kConvertsEight<To, From> && kCount % 8 == 0) {
    for (int i = 0; i < kCount; i += 8) convert_eight(to + i, from + i);
  } else if constexpr (kCount >= 16) {
    KRONOP_INDEPENDENT
    for (int i = 0; i < kCount; ++i) to[i] = convert<To>(from[i]);
  } else {
    for (int i = 0; i < kCount; ++i) to[i] = convert<To>(from[i]);
  }
}

// Loads kWidth lanes x kWidth elements, contiguous along the fibers, into the state.
template <class Step, class Element>
KRONOP_INLINE void load_transposed(typename Step::Compute* state, const Element* from,
                                   const index_t* offsets) {
  using Compute = typename Step::Compute;
  constexpr int kWidth = Step::kWidth, kLanes = Step::kWidth * Step::kVectors;
  Vector<Compute, kWidth> rows[kWidth];
  if constexpr (detail::is_same<Compute, Element>) {
    KRONOP_UNROLL
    for (int i = 0; i < kWidth; ++i) rows[i] = load<Compute, kWidth>(from + offsets[i]);
  } else {
    Compute staged[kWidth * kWidth];
    for (int i = 0; i < kWidth; ++i)
      convert_run<kWidth, kWidth>(staged + i * kWidth, from + offsets[i]);
    KRONOP_UNROLL
    for (int i = 0; i < kWidth; ++i) rows[i] = load<Compute, kWidth>(staged + i * kWidth);
  }
  transpose(rows);
  KRONOP_UNROLL
  for (int i = 0; i < kWidth; ++i) store(state + i * kLanes, rows[i]);
}

template <class Step, class Element>
void load_block(typename Step::Compute* __restrict state, const Element* __restrict from,
                const Lanes<Step::kWidth * Step::kVectors>& lanes, index_t stride, index_t count) {
  using Compute = typename Step::Compute;
  constexpr int kWidth = Step::kWidth, kLanes = kWidth * Step::kVectors;
  if (lanes.contiguous) {
    for (index_t g = 0; g < count; ++g) {
      convert_run<kLanes, kWidth>(state + g * kLanes, from + lanes.offset[0] + g * stride);
    }
    return;
  }
  index_t done = 0;
  if (stride == 1 && count >= kWidth) {
    for (index_t g = 0; g < count; g += kWidth) {
      const index_t start = g + kWidth <= count ? g : count - kWidth;
      for (int v = 0; v < kLanes; v += kWidth) {
        load_transposed<Step>(state + start * kLanes + v, from + start, lanes.offset + v);
      }
    }
    done = count;
  }
  for (index_t g = done; g < count; ++g) {
    for (int i = 0; i < kLanes; ++i) {
      state[g * kLanes + i] = convert<Compute>(from[lanes.offset[i] + g * stride]);
    }
  }
}

// A sink for values between passes: no epilogue, in scratch memory, in the compute type.
template <class Compute>
struct MiddleSink {
  template <class T>
  static constexpr bool kTakes =
      detail::is_same<T, Compute>;  // register tiles may store there directly
  Compute* to;

  bool direct() const { return true; }
  bool past_caches() const { return false; }
  Compute* place() const { return to; }

  MiddleSink at(index_t offset, index_t) const { return {to + offset}; }
  bool along(bool contiguous, bool) const { return contiguous; }
  KRONOP_INLINE void one(Compute value, index_t offset, index_t, index_t) const {
    to[offset] = value;
  }
  template <int kCount, bool kAlongFiber>
  KRONOP_INLINE void run(const Compute* values, index_t offset, index_t, index_t) const {
    __builtin_memcpy(to + offset, values, kCount * sizeof(Compute));
  }
};

// A sink that applies the epilogue and stores to Y, with a source z (or null) and a bias (by
// element of the fiber, or null).
template <class Step>
struct OutputSink {
  using Compute = typename Step::Compute;
  using Element = typename Step::Output;
  using Wide = typename Step::Epilogue::Compute;
  // If the epilogue changes nothing, register tiles may store results of Y's type directly.
  template <class T>
  static constexpr bool kTakes = detail::is_same<T, Element>;
  typename Step::Epilogue epilogue;
  Element* y;
  const Element* z;
  const Wide* bias;
  bool plain = false, stream = false;

  bool direct() const { return plain; }
  bool past_caches() const { return stream; }
  Element* place() const { return y; }
  OutputSink at(index_t y_offset, index_t z_offset) const {
    return {epilogue, y + y_offset, z ? z + z_offset : z, bias, plain, stream};
  }
  bool along(bool y_contiguous, bool z_contiguous) const {
    return y_contiguous && (!z || z_contiguous);
  }

  KRONOP_INLINE Wide finish(Compute value, Wide source, Wide bias_value) const {
    return epilogue(convert<Wide>(value), source, bias_value);
  }
  KRONOP_INLINE void one(Compute value, index_t y_offset, index_t z_offset, index_t element) const {
    const Wide source = z ? convert<Wide>(z[z_offset]) : Wide(0);
    y[y_offset] = convert<Element>(finish(value, source, bias ? bias[element] : Wide(0)));
  }
  // Stores values that are contiguous in memory, along a fiber or along the lanes. z may be y
  // itself.
  template <int kCount, bool kAlongFiber>
  KRONOP_INLINE void run(const Compute* values, index_t y_offset, index_t z_offset,
                         index_t element) const {
    Element* to = y + y_offset;
    const Element* from = z ? z + z_offset : z;
    const Wide* added = bias ? bias + element : bias;
    if (from && added) {
      each<kCount, kAlongFiber, true, true>(values, to, from, added);
    } else if (from) {
      each<kCount, kAlongFiber, true, false>(values, to, from, added);
    } else if (added) {
      each<kCount, kAlongFiber, false, true>(values, to, from, added);
    } else {
      each<kCount, kAlongFiber, false, false>(values, to, from, added);
    }
  }

 private:
  // NOTE: there is a loop for each case, because GCC vectorises only where neither a branch nor an
  // array lies between load and store. On Zen 3, ns for a result, 8 at once: float32 0.40 to 0.12,
  // bfloat16 1.09 to 0.40, int32 1.60 to 0.22.
  template <int kCount, bool kAlongFiber, bool kSource, bool kBias>
  KRONOP_INLINE void each(const Compute* values, Element* to, const Element* from,
                          const Wide* added) const {
    const auto result = [&](int i) __attribute__((always_inline)) {
      return finish(values[i], kSource ? convert<Wide>(from[i]) : Wide(0),
                    kBias ? added[kAlongFiber ? i : 0] : Wide(0));
    };
    if constexpr (kConvertsEight<Element, Wide> && kCount % 8 == 0) {
      Wide results[kCount];
      KRONOP_INDEPENDENT
      for (int i = 0; i < kCount; ++i) results[i] = result(i);
      convert_run<kCount, 8>(to, results);
    } else {
      KRONOP_INDEPENDENT
      for (int i = 0; i < kCount; ++i) to[i] = convert<Element>(result(i));
    }
  }
};

// Loads `count` elements, `column` apart in memory, into the state.
template <class Compute, class Element>
void load_run(Compute* __restrict state, const Element* __restrict from, index_t column,
              index_t count) {
  if (column == 1) {
    index_t done = 0;
    if constexpr (kConvertsEight<Compute, Element>) {
      for (; done + 8 <= count; done += 8) convert_eight(state + done, from + done);
    }
    KRONOP_INDEPENDENT
    for (index_t g = done; g < count; ++g) state[g] = convert<Compute>(from[g]);
  } else {
    for (index_t g = 0; g < count; ++g) state[g] = convert<Compute>(from[g * column]);
  }
}

// Stores `count` results through the sink.
template <int kWidth, class Compute, class Sink>
void store_run(const Sink& sink, const Compute* state, index_t y_column, index_t z_column,
               index_t count) {
  constexpr int kRun = 4 * kWidth;
  index_t done = 0;
  if (sink.along(y_column == 1, z_column == 1)) {
    for (; done + kRun <= count; done += kRun)
      sink.template run<kRun, true>(state + done, done, done, done);
  }
  for (; done < count; ++done) sink.one(state[done], done * y_column, done * z_column, done);
}

// Stores kWidth lanes x kWidth elements from `start` on, except those before `fresh`, which the
// previous block has stored.
template <class Step, class Sink, class LaneSet>
KRONOP_INLINE void store_transposed(const Sink& sink, const typename Step::Compute* state,
                                    const LaneSet& y, const LaneSet& z, const Block& block, int v,
                                    index_t start, index_t fresh) {
  using Compute = typename Step::Compute;
  constexpr int kWidth = Step::kWidth, kLanes = Step::kWidth * Step::kVectors;
  Vector<Compute, kWidth> rows[kWidth];
  KRONOP_UNROLL
  for (int i = 0; i < kWidth; ++i)
    rows[i] = load<Compute, kWidth>(state + (start + i) * kLanes + v);
  transpose(rows);
  if constexpr (Sink::template kTakes<Compute>) {
    if (sink.direct() && fresh == start && block.begin <= v && block.end >= v + kWidth) {
      KRONOP_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        Compute* to = sink.place() + y.offset[v + i] + start;
        if (sizeof(rows[i]) == 64 && sink.past_caches() &&
            reinterpret_cast<unsigned long long>(to) % 64 == 0) {
          stream(to, rows[i]);
        } else {
          store(to, rows[i]);
        }
      }
      return;
    }
  }
  Compute staged[kWidth * kWidth];
  KRONOP_UNROLL
  for (int i = 0; i < kWidth; ++i) store(staged + i * kWidth, rows[i]);
  const index_t begin = block.begin > v ? block.begin - v : 0;
  const index_t end = block.end < v + kWidth ? block.end - v : kWidth;
  for (index_t i = begin; i < end; ++i) {
    const Compute* values = staged + i * kWidth;
    const index_t to = y.offset[v + i], from = z.offset[v + i];
    if (fresh == start) {
      sink.template run<kWidth, true>(values, to + start, from + start, start);
    } else {
      for (index_t g = fresh; g < start + kWidth; ++g)
        sink.one(values[g - start], to + g, from + g, g);
    }
  }
}

template <class Step, class Sink, class LaneSet>
void store_block(const Sink& sink, const typename Step::Compute* state, const LaneSet& y,
                 index_t y_stride, const LaneSet& z, index_t z_stride, index_t count,
                 const Block& block) {
  constexpr int kWidth = Step::kWidth, kLanes = kWidth * Step::kVectors;
  const bool whole = block.begin == 0 && block.end == kLanes;
  if (whole && sink.along(y.contiguous, z.contiguous)) {
    for (index_t g = 0; g < count; ++g) {
      sink.template run<kLanes, false>(state + g * kLanes, y.offset[0] + g * y_stride,
                                       z.offset[0] + g * z_stride, g);
    }
    return;
  }
  if (count >= kWidth &&
      sink.along(y_stride == 1 && !y.contiguous, z_stride == 1 && !z.contiguous)) {
    for (index_t g = 0; g < count; g += kWidth) {
      const index_t start = g + kWidth <= count ? g : count - kWidth;
      for (int v = 0; v < kLanes; v += kWidth) {
        store_transposed<Step>(sink, state, y, z, block, v, start, g);
      }
    }
    return;
  }
  for (index_t g = 0; g < count; ++g) {
    for (index_t i = block.begin; i < block.end; ++i) {
      const index_t to = y.contiguous ? y.offset[0] + i : y.offset[i];
      const index_t from = z.contiguous ? z.offset[0] + i : z.offset[i];
      sink.one(state[g * kLanes + i], to + g * y_stride, from + g * z_stride, g);
    }
  }
}

}  // namespace kronop
