// Multiplies rows by factors, both written by Python, writes the results, and prints the time.
#include <kron.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr int kFactors = 3, kSize = 6, kColumns = kSize * kSize * kSize;

void check(int status) {
  if (status != 0) throw std::runtime_error(kron_status_string(status));
}

class Product {
 public:
  explicit Product(std::vector<float> numbers) : numbers_(std::move(numbers)) {
    for (int at = 0; at < kFactors; ++at) {
      factors_.push_back(numbers_.data() + at * kSize * kSize);
    }
    check(kron_init(&handle_));
  }
  ~Product() { kron_destroy(handle_); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::vector<float> operator()(const std::vector<float>& x) {
    const auto rows = static_cast<int64_t>(x.size()) / kColumns;
    size_t result_bytes, workspace_bytes;
    check(kron_sizes(handle_, rows, &result_bytes, &workspace_bytes));
    workspace_.resize(workspace_bytes);
    std::vector<float> y(result_bytes / sizeof(float));
    check(kron_run(handle_, rows, x.data(), factors_.data(), y.data(), 1.0, 0.0, nullptr,
                   workspace_.data(), nullptr));
    return y;
  }

 private:
  std::vector<float> numbers_;
  std::vector<const float*> factors_;
  std::vector<char> workspace_;
  kron_handle handle_;
};

std::vector<float> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<float> numbers(file.tellg() / sizeof(float));
  file.seekg(0).read(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(float));
  return numbers;
}

void write(const std::string& path, const std::vector<float>& numbers) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

int main(int count, char** arguments) try {
  const std::string folder = count > 1 ? arguments[1] : ".";
  Product product(read(folder + "/factors.bin"));
  const std::vector<float> x = read(folder + "/x.bin");
  const std::vector<float> y = product(x);
  write(folder + "/y.bin", y);
  std::printf("%zu rows, first %.2f, last %.2f\n", y.size() / kColumns, y.front(), y.back());

  const auto begin = std::chrono::steady_clock::now();
  for (int call = 0; call < 1000; ++call) product(x);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::printf("%.0f microseconds a call\n", time.count() / 1000);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
