// Operands that are gathered, such as patches of images: the lines of a panel are copied to memory
// that stays in the first-level cache, and packed from there.
#pragma once

#include "gemm_parameters.hpp"

namespace kronop::gemm {

// What indices add to the offset and to the coordinates of an element.
struct Position {
  index_t offset, u, v;
};

// Whether there is an element, and its offset.
struct Spot {
  bool exists;
  index_t offset;
};

// Whether a coordinate is a multiple of `every`, by which it is divided.
KRONOP_INLINE bool divide(index_t& coordinate, index_t every) {
  if (every == 1) return true;
  // Strides are mostly 2, and divisions take many cycles.
  const index_t quotient = every == 2 ? coordinate / 2 : coordinate / every;
  const index_t rest = coordinate - quotient * every;
  coordinate = quotient;
  return rest == 0;
}

// The element of a row and a column, whose coordinates begin at `first`.
KRONOP_INLINE Spot find(const Gathering& g, const index_t (&first)[2], const Position& a,
                        const Position& b) {
  index_t u = first[0] + a.u + b.u, v = first[1] + a.v + b.v;
  if (u < 0 || v < 0 || !divide(u, g.every[0]) || !divide(v, g.every[1])) return {false, 0};
  if (u >= g.extents[0] || v >= g.extents[1]) return {false, 0};
  return {true, a.offset + b.offset + u * g.strides[0] + v * g.strides[1]};
}

// Iterates over the values of an index without divisions.
class Walk {
 public:
  Walk(const Digits& digits, index_t index) : d_(digits) {
    const index_t rest = index / d_.extents[2];
    at_[0] = rest / d_.extents[1], at_[1] = rest % d_.extents[1], at_[2] = index % d_.extents[2];
    for (int i = 0; i < 3; ++i) add(i, at_[i]);
  }

  const Position& position() const { return position_; }
  index_t last_digit() const { return at_[2]; }
  // How many values, from this one on, are step() apart and in one row of pixels.
  index_t run() const { return is_run(d_) ? d_.extents[2] - at_[2] : 1; }
  index_t step() const { return d_.steps[2]; }
  index_t pixel() const { return d_.pixel; }

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
    position_.offset += count * d_.steps[digit];
    position_.u += count * d_.u[digit];
    position_.v += count * d_.v[digit];
  }

  const Digits& d_;
  index_t at_[3];
  Position position_{};
};

// Parts of a slab outside which a panel is 0, in order.
struct Spans {
  static constexpr int kMost = 8;
  int count = 0;
  index_t begin[kMost], end[kMost];

  // Adds a part behind all others; the last part takes it in if they touch or there are too many.
  KRONOP_INLINE void add(index_t first, index_t last) {
    const bool joins = count > 0 && (first <= end[count - 1] || count == kMost);
    if (!joins) begin[count++] = first;
    end[count - 1] = last;
  }
};

// The elements of lines, which are rows or columns of an operand.
template <class Element>
class Gatherer {
 public:
  // `count` lines in memory, `line` elements apart, of `depth` elements, `along` apart.
  struct Panel {
    const Element* first;
    index_t line, along, count, depth;
  };

  // `staged`: memory for a panel.
  Gatherer(const Gathering& gathering, bool of_rows, void* staged)
      : g_(gathering), lines_(of_rows ? g_.rows : g_.columns),
        along_(of_rows ? g_.columns : g_.rows), staged_(static_cast<Element*>(staged)) {}

  // Moves on to the matrix of a problem.
  void enter(const Place& place) {
    first_[0] = g_.first[0] + place.offset(g_.batch_u);
    first_[1] = g_.first[1] + place.offset(g_.batch_v);
  }
  // Where a coordinate of the matrix begins.
  index_t first(int axis) const { return first_[axis]; }

  // `count` lines of `depth` elements from k on: those from `line` on, or those in `order`. Where
  // they are not read in place, there are `lines` of `length` elements; further ones are 0.
  Panel panel(const Element* from, index_t line, const index_t* order, index_t k, index_t count,
              index_t depth, index_t lines, index_t length) const {
    const Walk first(lines_, order ? order[0] : line), begin(along_, k);
    if (order == nullptr && along_.pixel == 0) {
      if (first.run() >= count && lines_.pixel == 0 && begin.run() >= depth) {
        const Spot spot = at(first, begin);
        if (spot.exists) return {from + spot.offset, first.step(), begin.step(), count, depth};
      }
      if (Walk::is_run(lines_) && lines_.steps[2] == 1) {
        Walk outer = begin;
        for (index_t i = 0; i < length; ++i) {
          copy_line(from, i < depth ? &outer : nullptr, first, count, lines, staged_ + i * lines);
          if (i < depth) outer.advance(1);
        }
        return {staged_, 1, lines, lines, length};
      }
    }
    Walk outer = first;
    for (index_t i = 0; i < lines; ++i) {
      const Walk own = order && i < count ? Walk(lines_, order[i]) : outer;
      copy_line(from, i < count ? &own : nullptr, begin, depth, length, staged_ + i * length);
      if (order == nullptr && i < count) outer.advance(1);
    }
    return {staged_, length, 1, lines, length};
  }

  // Whether some elements are between those that exist.
  bool is_sparse() const { return g_.every[0] * g_.every[1] != 1; }

  // Orders `count` lines from `line` on so that those with elements at the same places of a slab
  // are neighbours; the first line stays the first.
  void sort(index_t line, index_t count, index_t* order) const {
    const index_t classes = g_.every[0] * g_.every[1], first = class_of(Walk(lines_, line));
    index_t begins[kMostClasses + 1] = {};
    const auto each = [&](const auto& action) {
      Walk walk(lines_, line);
      for (index_t i = 0; i < count; ++i, walk.advance(1)) {
        const index_t after = class_of(walk) - first + classes;
        action(line + i, classes > kMostClasses ? 0 : after % classes);
      }
    };
    each([&](index_t, index_t own) { ++begins[own + 1]; });
    for (int i = 0; i < kMostClasses; ++i) begins[i + 1] += begins[i];
    each([&](index_t index, index_t own) { order[begins[own]++] = index; });
  }

  // The spans of lines in `order`; they begin and end at multiples of `unit`.
  Spans spans(const index_t* order, index_t k, index_t count, index_t depth, index_t unit) const {
    Spans found;
    Walk along(along_, k);
    for (index_t begin = 0; begin < depth;) {
      const index_t end = begin + lesser(along.run(), depth - begin);
      for (index_t i = 0; i < count; ++i) {
        if (!at(Walk(lines_, order[i]), along).exists) continue;
        found.add(begin / unit * unit, parts(end, unit) * unit);
        break;
      }
      along.advance(end - begin);
      begin = end;
    }
    return found;
  }

 private:
  static constexpr int kMostClasses = 16;

  // Copies `width` elements of a line from `inner` on, with zeros up to `whole`; a line that is
  // null is 0.
  KRONOP_INLINE void copy_line(const Element* from, const Walk* line, Walk inner, index_t width,
                               index_t whole, Element* to) const {
    if (line == nullptr) return fill(to, whole);
    for (index_t j = 0; j < width;) {
      const index_t count = lesser(inner.run(), width - j);
      copy_run(from, *line, inner, count, to + j);
      inner.advance(count);
      j += count;
    }
    fill(to + width, whole - width);
  }

  KRONOP_INLINE void copy_run(const Element* from, const Walk& line, const Walk& inner,
                              index_t count, Element* to) const {
    if (inner.pixel()) return copy_pixels(from, line, inner, count, to);
    const Spot spot = at(line, inner);
    if (!spot.exists) return fill(to, count);
    copy(from + spot.offset, inner.step(), count, to);
  }

  // A run that is longer than a pixel may begin or end outside the image.
  KRONOP_INLINE void copy_pixels(const Element* from, const Walk& line, const Walk& inner,
                                 index_t count, Element* to) const {
    const Position &a = line.position(), &b = inner.position();
    index_t u = first_[0] + a.u + b.u;
    const index_t v = first_[1] + a.v + b.v, pixel = inner.pixel(), done = inner.last_digit();
    const index_t begin = greater(0, -v * pixel - done);
    const index_t end = lesser(count, (g_.extents[1] - v) * pixel - done);
    if (end <= begin || u < 0 || !divide(u, g_.every[0]) || u >= g_.extents[0])
      return fill(to, count);
    fill(to, begin);
    const index_t offset = a.offset + b.offset + u * g_.strides[0] + v * g_.strides[1];
    copy(from + offset + begin, 1, end - begin, to + begin);
    fill(to + end, count - end);
  }

  KRONOP_INLINE Spot at(const Walk& a, const Walk& b) const {
    return find(g_, first_, a.position(), b.position());
  }

  // Lines of one class have elements at the same places of a slab, but for the borders.
  index_t class_of(const Walk& line) const {
    const Position& at = line.position();
    return at.u % g_.every[0] * g_.every[1] + at.v % g_.every[1];
  }

  KRONOP_INLINE static void copy(const Element* from, index_t step, index_t count, Element* to) {
    if (step == 1) {
      __builtin_memcpy(to, from, count * sizeof(Element));
    } else {
      for (index_t i = 0; i < count; ++i) to[i] = from[i * step];
    }
  }

  KRONOP_INLINE static void fill(Element* to, index_t count) {
    if (count > 0) __builtin_memset(to, 0, count * sizeof(Element));
  }

  static constexpr index_t greater(index_t a, index_t b) { return a > b ? a : b; }

  const Gathering& g_;
  const Digits &lines_, &along_;
  Element* staged_;
  index_t first_[2] = {};
};

// Packs operands that are gathered. If there are zeros between the elements of A, rows of an item
// are sorted, so that large parts of their panels are 0, which are not multiplied.
template <class Step, class Plain>
class GatheredFeed {
 public:
  using Packed = typename Step::Packed;
  static constexpr bool kSkips = Step::kInOrder;

  // An address, and where coordinates begin.
  struct Matrix {
    const void* from;
    index_t u, v;
    bool operator==(const Matrix&) const = default;
  };

  GatheredFeed(const GatheredParameters<Plain>& parameters, char* scratch_end)
      : p_(parameters.plain), order_(reinterpret_cast<index_t*>(scratch_end - parameters.staged)),
        rows_(parameters.a_gathering, true, order_ + p_.rows),
        columns_(parameters.b_gathering, false, order_ + p_.rows),
        sorts_(kSkips && rows_.is_sparse()) {}

  void enter(const Place& place, index_t m, index_t rows) {
    a_ = static_cast<const Input*>(p_.a) + place.offset(p_.a_batch);
    b_ = static_cast<const Input*>(p_.b) + place.offset(p_.b_batch);
    rows_.enter(place);
    columns_.enter(place);
    m_ = m;
    if (sorts_) rows_.sort(m, rows, order_);
  }
  // The operand B of the problem: problems that have the same one share its packed columns.
  Matrix b() const { return {b_, columns_.first(0), columns_.first(1)}; }
  // The row that is the i-th one of the item.
  index_t row(index_t i) const { return sorts_ ? order_[i] : m_ + i; }
  // The spans of a panel of the block.
  const Spans& live(index_t panel) const { return live_[panel]; }

  void rows(Packed* to, index_t i, index_t panel, index_t k, index_t count, index_t depth) {
    count = lesser(count, Step::kRows);
    if (!sorts_) {
      live_[panel].count = 0;
      live_[panel].add(0, whole(depth));
      return pack_rows(to, i, nullptr, k, count, depth);
    }
    const index_t* order = order_ + i;
    const Spans live = live_[panel] = rows_.spans(order, k, count, depth, Step::kUnit);
    for (int s = 0; s < live.count; ++s) {
      const index_t begin = live.begin[s], some = lesser(live.end[s], depth) - begin;
      pack_rows(to + begin * Step::kRows, i, order, k + begin, count, some);
    }
  }
  void columns(Packed* to, index_t n, index_t k, index_t count, index_t depth) const {
    const auto panel = columns_.panel(b_, n, nullptr, k, lesser(count, Step::kPanel), depth,
                                      Step::kPanel, whole(depth));
    Step::pack_columns(to, panel.first, panel.line, panel.along, panel.count, panel.depth);
  }

 private:
  using Input = typename Step::Input;

  static constexpr index_t whole(index_t depth) { return parts(depth, Step::kUnit) * Step::kUnit; }

  void pack_rows(Packed* to, index_t i, const index_t* order, index_t k, index_t count,
                 index_t depth) const {
    const auto panel = rows_.panel(a_, m_ + i, order, k, count, depth, Step::kRows, whole(depth));
    Step::pack_rows(to, panel.first, panel.line, panel.along, panel.count, panel.depth);
  }

  const Plain& p_;
  index_t* const order_;
  Gatherer<Input> rows_, columns_;
  const bool sorts_;
  const Input *a_ = nullptr, *b_ = nullptr;
  index_t m_ = 0;
  Spans live_[Step::kBlockRows / Step::kRows];
};

}  // namespace kronop::gemm
