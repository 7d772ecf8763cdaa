// The values of amx.hpp's sweeps, against sums in double. Prints what differs, and returns how many do.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "amx_driver.hpp"

using namespace driver;

namespace {

int failures = 0;
std::mt19937 generator(7);

float value_of(bf16 number) { return detail::from_bfloat16(number.bits); }

// Small whole numbers: every sum that occurs is exact, in bf16 too. Otherwise normal ones.
std::vector<bf16> numbers(index_t count, bool whole, int one_in = 1) {
  std::normal_distribution<float> normal;
  std::vector<bf16> made(count);
  for (bf16& number : made) {
    const float small = generator() % one_in ? 0.0f : float(int(generator() % 3) - 1);
    number.bits = detail::to_bfloat16(whole ? small : normal(generator));
  }
  return made;
}

struct Mode {
  index_t left, p, q, right;
};

std::vector<double> product(const std::vector<double>& x, const Mode& mode, const std::vector<double>& factor) {
  std::vector<double> y(mode.left * mode.q * mode.right);
  for (index_t l = 0; l < mode.left; ++l) {
    for (index_t p = 0; p < mode.p; ++p) {
      for (index_t q = 0; q < mode.q; ++q) {
        for (index_t r = 0; r < mode.right; ++r) {
          y[(l * mode.q + q) * mode.right + r] += x[(l * mode.p + p) * mode.right + r] * factor[p * mode.q + q];
        }
      }
    }
  }
  return y;
}

std::vector<double> wide(const std::vector<bf16>& values, bool magnitude) {
  std::vector<double> made;
  for (const bf16& value : values) made.push_back(magnitude ? std::fabs(value_of(value)) : value_of(value));
  return made;
}

// Each rounding to bf16 is one of 2^-8, fp32 sums in any order are wrong by less than 2^-16 here.
void compare(const char* what, const std::vector<float>& got, const std::vector<double>& want,
             const std::vector<double>& magnitude, bool whole, int roundings) {
  const double relative = whole ? 0 : std::pow(1 + 0x1p-8 + 0x1p-16, roundings) - 1 + 0x1p-16;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::fabs(got[i] - want[i]) <= relative * magnitude[i]) continue;
    std::printf("%s: element %zu is %g, expected %g\n", what, i, got[i], want[i]);
    ++failures;
    return;
  }
}

struct Expected {
  std::vector<double> values, magnitudes;
};

Expected expected(index_t rows, const std::vector<bf16>& x, const std::vector<std::vector<bf16>>& factors,
                  const std::vector<std::pair<index_t, index_t>>& sizes) {
  Expected made;
  for (bool magnitude : {false, true}) {
    std::vector<double> state = wide(x, magnitude);
    index_t left = rows;
    for (auto [p, q] : sizes) left *= p;
    index_t right = 1;
    for (size_t f = sizes.size(); f-- > 0;) {
      left /= sizes[f].first;
      state = product(state, {left, sizes[f].first, sizes[f].second, right}, wide(factors[f], magnitude));
      right *= sizes[f].second;
    }
    (magnitude ? made.magnitudes : made.values) = state;
  }
  return made;
}

struct Problem {
  index_t rows, columns, outputs;
  std::vector<bf16> x;
  std::vector<std::vector<bf16>> factors;
  Expected want;
  std::vector<char> scratch;
  char* aligned;

  Problem(index_t rows_, const std::vector<std::pair<index_t, index_t>>& sizes, bool whole) : rows(rows_) {
    columns = outputs = 1;
    index_t most = 1, largest = 1;
    for (auto [p, q] : sizes) {
      columns *= p, outputs *= q;
      most = std::max({most, p, q});
      largest *= std::max(p, q) + 64;
    }
    x = numbers(rows * columns, whole);
    for (auto [p, q] : sizes) factors.push_back(numbers(p * q, whole, int(p + 1) / 2));
    want = expected(rows, x, factors, sizes);
    scratch.assign(scratch_bytes(largest * 2, most), char(0xff));  // bf16 NaN
    aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
  }

  // With columns `step` apart, and other numbers between them.
  std::vector<bf16> spread(index_t step) const {
    std::vector<bf16> made((rows * columns - 1) * step + 1, bf16{0x7fff});
    for (size_t i = 0; i < x.size(); ++i) made[i * step] = x[i];
    return made;
  }
};

// Through the sink of sums, and through that of bf16.
template <class Run>
void both(const char* name, const Problem& problem, bool whole, int between, const Run& run) {
  char what[200];
  for (index_t step : {1, 2}) {
    const std::vector<bf16> x = problem.spread(step);
    Operands in{x.data(), problem.columns * step, step, problem.rows, {}};
    for (size_t f = 0; f < problem.factors.size(); ++f) in.factors[f] = problem.factors[f].data();
    std::vector<float> sums(problem.rows * problem.outputs, NAN);
    run(in, [&](index_t row, index_t stride) { return Sums<float>{sums.data() + row * problem.outputs, stride}; });
    std::snprintf(what, sizeof what, "%s, step %lld, sums%s", name, step, whole ? ", whole numbers" : "");
    compare(what, sums, problem.want.values, problem.want.magnitudes, whole, between);
    std::vector<bf16> rounded(problem.rows * problem.outputs, bf16{0x7fff});
    run(in, [&](index_t row, index_t stride) { return Rows<true>{rounded.data() + row * problem.outputs, stride}; });
    std::vector<float> values;
    for (const bf16& value : rounded) values.push_back(value_of(value));
    std::snprintf(what, sizeof what, "%s, step %lld, bf16%s", name, step, whole ? ", whole numbers" : "");
    compare(what, values, problem.want.values, problem.want.magnitudes, whole, between + 1);
  }
}

template <class Engine, index_t kP, index_t kQ>
void one(index_t rows) {
  char name[100];
  std::snprintf(name, sizeof name, "%lld rows, %lldx%lld", rows, kP, kQ);
  for (bool whole : {true, false}) {
    Problem problem(rows, {{kP, kQ}}, whole);
    both(name, problem, whole, 0, [&](const Operands& in, const auto& sink) {
      Engine engine;
      run_one<Engine, kP, kQ>(engine, in, problem.aligned, sink(0, kQ));
    });
  }
}

template <class Engine, index_t kP1, index_t kQ1, index_t kP2, index_t kQ2>
void two(index_t rows, index_t group) {
  char name[100];
  std::snprintf(name, sizeof name, "%lld rows, %lldx%lld, %lldx%lld", rows, kP1, kQ1, kP2, kQ2);
  for (bool whole : {true, false}) {
    Problem problem(rows, {{kP1, kQ1}, {kP2, kQ2}}, whole);
    both(name, problem, whole, 1, [&](const Operands& in, const auto& sink) {
      Engine engine;
      run_two<Engine, kP1, kQ1, kP2, kQ2, 0>(engine, in, group, problem.aligned,
                                             [&](index_t row) { return sink(row, kQ2); });
    });
  }
}

template <class Engine, index_t kP1, index_t kQ1, index_t kP2, index_t kQ2, index_t kP3, index_t kQ3>
void three(index_t rows) {
  char name[100];
  std::snprintf(name, sizeof name, "%lld rows, %lldx%lld, %lldx%lld, %lldx%lld", rows, kP1, kQ1, kP2, kQ2, kP3, kQ3);
  for (bool whole : {true, false}) {
    Problem problem(rows, {{kP1, kQ1}, {kP2, kQ2}, {kP3, kQ3}}, whole);
    both(name, problem, whole, 2, [&](const Operands& in, const auto& sink) {
      Engine engine;
      run_three<Engine, kP1, kQ1, kP2, kQ2, kP3, kQ3, 0>(engine, in, problem.aligned,
                                                         [&](index_t row) { return sink(row, kQ2 * kQ3); });
    });
  }
}

// A digit with contiguous numbers after it, from numbers as they are in memory: X contiguous along rows.
template <class Engine, class Number, index_t kP, index_t kQ, index_t kTrail>
void plain(index_t trail) {
  using Sum = typename Kind<Number>::Sum;
  const index_t stride = trail + 3;
  std::vector<Number> x(kP * stride), factor(kP * kQ);
  std::vector<double> wide_x(kP * trail), wide_factor(kP * kQ);
  const auto random = [] {
    if constexpr (sizeof(Number) == 1) return Number(generator());
    if constexpr (sizeof(Number) == 2) return Number{detail::to_bfloat16(float(int(generator() % 9) - 4))};
  };
  const auto number = [](Number value) {
    if constexpr (sizeof(Number) == 1) return double(value);
    if constexpr (sizeof(Number) == 2) return double(value_of(value));
  };
  for (Number& value : x) value = random();
  for (Number& value : factor) value = random();
  for (index_t p = 0; p < kP; ++p) {
    for (index_t t = 0; t < trail; ++t) wide_x[p * trail + t] = number(x[p * stride + t]);
    for (index_t q = 0; q < kQ; ++q) wide_factor[p * kQ + q] = number(factor[p * kQ + q]);
  }
  const std::vector<double> want = product(wide_x, {1, kP, kQ, trail}, wide_factor);
  using Sweep = LineSweep<Number, kP, kQ, kTrail>;
  std::vector<Number> tiles(kFactorNumbers<Number, kP, kQ>), staged(Sweep::kStaged);
  pack_factor<true, kP, kQ>(tiles.data(), [&](index_t p, index_t q) { return factor[p * kQ + q]; });
  std::vector<Sum> sums(kQ * trail, Sum(-77));
  Engine engine;
  // The last line ends where the digit does.
  std::vector<Number> exact(x.begin(), x.end() - 3);
  Sweep::run_plain(engine, exact.data(), stride, trail, tiles.data(), staged.data(), Sums<Sum>{sums.data(), trail});
  char what[100];
  std::snprintf(what, sizeof what, "%d-byte numbers, %lldx%lld before %lld", int(sizeof(Number)), kP, kQ, trail);
  compare(what, std::vector<float>(sums.begin(), sums.end()), want, want, true, 0);
}

template <index_t kP, index_t kQ>
void bytes(index_t rows, index_t step) {
  std::vector<int8_t> x(((rows * kP) - 1) * step + 1), factor(kP * kQ);
  for (int8_t& value : x) value = int8_t(generator());
  for (int8_t& value : factor) value = int8_t(generator());
  std::vector<int8_t> tiles(kFactorNumbers<int8_t, kP, kQ>), staged(kPitch * Depth<int8_t>{kP}.padded());
  pack_factor<false, kP, kQ>(tiles.data(), [&](index_t p, index_t q) { return factor[p * kQ + q]; });
  std::vector<int32_t> sums(rows * kQ, -77);
  TileEngine engine;
  LastSweep<int8_t, kP, kQ, kPitch>::run(engine, x.data(), kP * step, step, rows, tiles.data(), staged.data(),
                                         Sums<int32_t>{sums.data(), kQ});
  std::vector<double> want(rows * kQ);
  for (index_t l = 0; l < rows; ++l) {
    for (index_t p = 0; p < kP; ++p) {
      for (index_t q = 0; q < kQ; ++q) want[l * kQ + q] += double(x[(l * kP + p) * step]) * factor[p * kQ + q];
    }
  }
  compare("int8", std::vector<float>(sums.begin(), sums.end()), want, want, true, 0);
}

// Rows of y, from factors of ones: of numbers, of those with an infinity, of those with a NaN.
void check_special(const std::vector<float>& y) {
  const size_t columns = y.size() / 3;
  for (size_t i = 0; i < columns; ++i) {
    if (std::isfinite(y[i]) && std::isinf(y[columns + i]) && std::isnan(y[2 * columns + i])) continue;
    std::printf("special: %g %g %g\n", y[i], y[columns + i], y[2 * columns + i]);
    ++failures;
    return;
  }
}

// An infinity meets no zero of the padding, and a NaN stays one. They are the last numbers of odd digits.
template <class Engine>
void special() {
  const auto run = [](const std::vector<std::pair<index_t, index_t>>& sizes, const auto& digits) {
    Problem problem(3, sizes, true);
    Operands in{problem.x.data(), problem.columns, 1, 3, {}};
    for (size_t f = 0; f < sizes.size(); ++f) {
      problem.factors[f].assign(problem.factors[f].size(), bf16{0x3f80});
      in.factors[f] = problem.factors[f].data();
    }
    problem.x[2 * problem.columns - 1].bits = 0x7f80;
    problem.x[3 * problem.columns - 1].bits = 0x7fc1;
    std::vector<float> y(3 * problem.outputs);
    Engine engine;
    digits(engine, in, problem.aligned, [&](index_t row) {
      return Sums<float>{y.data() + row * problem.outputs, problem.outputs / sizes[0].second};
    });
    check_special(y);
  };
  run({{33, 17}, {33, 17}}, [](Engine& engine, const Operands& in, char* scratch, const auto& sink) {
    run_two<Engine, 33, 17, 33, 17, 0>(engine, in, 2, scratch, sink);
  });
  run({{3, 5}, {7, 17}, {5, 16}}, [](Engine& engine, const Operands& in, char* scratch, const auto& sink) {
    run_three<Engine, 3, 5, 7, 17, 5, 16, 0>(engine, in, scratch, sink);
  });
}

// What both engines do.
template <class Engine>
void every() {
  one<Engine, 64, 64>(37);
  one<Engine, 31, 17>(33);
  two<Engine, 32, 32, 32, 32>(5, 2);
  two<Engine, 33, 50, 65, 20>(3, 2);
  three<Engine, 5, 6, 7, 18, 33, 31>(2);
  plain<Engine, bf16, 33, 50, 32>(77);
  special<Engine>();
}

}  // namespace

int main() {
  if (!allow_tiles()) return std::puts("no permission to use tiles"), 99;
  every<TileEngine>();
  every<PairEngine>();
  one<TileEngine, 100, 40>(32);
  two<TileEngine, 64, 64, 64, 64>(2, 2);
  two<TileEngine, 1, 2, 2, 16>(40, 40);
  three<TileEngine, 2, 3, 50, 33, 16, 64>(2);
  three<TileEngine, 67, 5, 3, 20, 9, 17>(1);
  // Fewer columns than a vector has: tiles alone.
  two<TileEngine, 16, 3, 31, 5>(3, 2);
  three<TileEngine, 5, 5, 5, 5, 5, 5>(3);
  plain<TileEngine, bf16, 65, 33, 11>(11);
  plain<TileEngine, int8_t, 64, 64, 32>(64);
  plain<TileEngine, int8_t, 70, 20, 32>(45);
  plain<TileEngine, int8_t, 3, 40, 13>(13);
  bytes<64, 64>(64, 1);
  bytes<64, 64>(40, 2);
  bytes<130, 33>(35, 1);
  bytes<5, 5>(32, 1);
  std::printf("%d failures\n", failures);
  return failures != 0;
}
