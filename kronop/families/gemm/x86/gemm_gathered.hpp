// Operands that are gathered, such as patches of images: the lines of a panel are copied to memory
// that stays in the first-level cache, and packed from there.
#pragma once

#include "gemm_parameters.hpp"

namespace kronop::gemm {

// Iterates over the values of an index without divisions.
class Walk {
 public:
  Walk(const Digits& digits, index_t index) : d_(digits) {
    const index_t rest = index / d_.extents[2];
    at_[0] = rest / d_.extents[1], at_[1] = rest % d_.extents[1], at_[2] = index % d_.extents[2];
    for (int i = 0; i < 3; ++i) add(i, at_[i]);
  }

  index_t offset() const { return offset_; }
  index_t u() const { return u_; }
  index_t v() const { return v_; }
  // How many values have the same coordinates, from this one on, and are step() apart.
  index_t run() const { return is_run(d_) ? d_.extents[2] - at_[2] : 1; }
  index_t step() const { return d_.steps[2]; }

  static bool is_run(const Digits& digits) { return digits.u[2] == 0 && digits.v[2] == 0; }

  // Moves on by at most a run.
  KRONOP_INLINE void advance(index_t count) {
    at_[2] += count;
    add(2, count);
    for (int i = 2; i > 0 && at_[i] == d_.extents[i]; --i) {
      add(i, -at_[i]);
      at_[i] = 0;
      ++at_[i - 1];
      add(i - 1, 1);
    }
  }

 private:
  KRONOP_INLINE void add(int digit, index_t count) {
    offset_ += count * d_.steps[digit];
    u_ += count * d_.u[digit];
    v_ += count * d_.v[digit];
  }

  const Digits& d_;
  index_t at_[3], offset_ = 0, u_ = 0, v_ = 0;
};

// The elements of lines, of one operand.
template <class Element>
class Gatherer {
 public:
  // A panel in memory: lines are `line` elements apart, and elements of a line `along`.
  struct Panel {
    const Element* first;
    index_t line, along;
  };

  // Lines are rows or columns of the operand. `staged` holds a panel.
  Gatherer(const Gathering& gathering, bool of_rows, void* staged)
      : g_(gathering), lines_(of_rows ? g_.rows : g_.columns),
        along_(of_rows ? g_.columns : g_.rows), staged_(static_cast<Element*>(staged)) {}

  // `count` lines from `line` on, of `depth` elements from k on. It has `lines` lines of `length`
  // elements; further ones are 0.
  Panel panel(const Element* from, index_t line, index_t k, index_t count, index_t depth,
              index_t lines, index_t length) const {
    count = lesser(count, lines);
    const Walk first(lines_, line), begin(along_, k);
    if (Walk::is_run(lines_) && lines_.steps[2] == 1) {
      copy(from, begin, depth, length, first, count, lines);
      return {staged_, 1, lines};
    }
    copy(from, first, count, lines, begin, depth, length);
    return {staged_, length, 1};
  }

 private:
  // Copies `height` runs, from `outer` on, of `width` elements each, from `inner` on. They are
  // padded to `whole_height` runs of `whole_width`.
  void copy(const Element* from, Walk outer, index_t height, index_t whole_height,
            const Walk& first, index_t width, index_t whole_width) const {
    Element* to = staged_;
    for (index_t i = 0; i < height; ++i, to += whole_width) {
      Walk inner = first;
      for (index_t j = 0; j < width;) {
        const index_t count = lesser(inner.run(), width - j);
        copy_run(to + j, at(from, outer, inner), inner.step(), count);
        inner.advance(count);
        j += count;
      }
      fill(to + width, whole_width - width);
      outer.advance(1);
    }
    fill(to, (whole_height - height) * whole_width);
  }

  // Where an element is; null if it is 0.
  KRONOP_INLINE const Element* at(const Element* from, const Walk& a, const Walk& b) const {
    index_t u = g_.first[0] + a.u() + b.u(), v = g_.first[1] + a.v() + b.v();
    if (u < 0 || v < 0) return nullptr;
    if (!divide(u, g_.every[0]) || !divide(v, g_.every[1])) return nullptr;
    if (u >= g_.extents[0] || v >= g_.extents[1]) return nullptr;
    return from + a.offset() + b.offset() + u * g_.strides[0] + v * g_.strides[1];
  }

  // Whether a coordinate is a multiple of `every`, by which it is divided.
  KRONOP_INLINE static bool divide(index_t& coordinate, index_t every) {
    if (every == 1) return true;
    const index_t quotient = coordinate / every, rest = coordinate - quotient * every;
    coordinate = quotient;
    return rest == 0;
  }

  KRONOP_INLINE static void copy_run(Element* to, const Element* from, index_t step,
                                     index_t count) {
    if (from == nullptr) return fill(to, count);
    if (step == 1) {
      __builtin_memcpy(to, from, count * sizeof(Element));
    } else {
      for (index_t i = 0; i < count; ++i) to[i] = from[i * step];
    }
  }

  static void fill(Element* to, index_t count) { __builtin_memset(to, 0, count * sizeof(Element)); }

  const Gathering& g_;
  const Digits &lines_, &along_;
  Element* staged_;
};

// Packs operands that are gathered.
template <class Step, class Plain>
class GatheredFeed {
 public:
  using Packed = typename Step::Packed;

  GatheredFeed(const GatheredParameters<Plain>& parameters, char* scratch_end)
      : p_(parameters.plain), rows_(parameters.a_gathering, true, scratch_end - parameters.staged),
        columns_(parameters.b_gathering, false, scratch_end - parameters.staged) {}

  void enter(const Place& place) {
    a_ = static_cast<const Input*>(p_.a) + place.offset(p_.a_batch);
    b_ = static_cast<const Input*>(p_.b) + place.offset(p_.b_batch);
  }
  const void* b() const { return b_; }

  void rows(Packed* to, index_t m, index_t k, index_t count, index_t depth) const {
    const index_t length = parts(depth, Step::kUnit) * Step::kUnit;
    const auto panel = rows_.panel(a_, m, k, count, depth, Step::kRows, length);
    Step::pack_rows(to, panel.first, panel.line, panel.along, Step::kRows, length);
  }
  void columns(Packed* to, index_t n, index_t k, index_t count, index_t depth) const {
    const index_t length = parts(depth, Step::kUnit) * Step::kUnit;
    const auto panel = columns_.panel(b_, n, k, count, depth, Step::kPanel, length);
    Step::pack_columns(to, panel.first, panel.line, panel.along, Step::kPanel, length);
  }

 private:
  using Input = typename Step::Input;

  const Plain& p_;
  const Gatherer<Input> rows_, columns_;
  const Input *a_ = nullptr, *b_ = nullptr;
};

}  // namespace kronop::gemm
