// The handler of custom calls on a CPU: kernels are functions of this process.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kronop_jax/call.hpp"

namespace {

// XLA's threads flush denormal numbers to zero. The kernels' own threads don't, so neither does the
// thread that calls them: a result must not depend on the thread that computed it.
class DefaultArithmetic {
#if defined(__SSE__)
 public:
  DefaultArithmetic() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultArithmetic() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
 public:
  DefaultArithmetic() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    set(0);
  }
  ~DefaultArithmetic() { set(before_); }

 private:
  static void set(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
  uint64_t before_;
#endif
};

XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame) {
  if (answers_metadata(frame)) return nullptr;
  const DefaultArithmetic arithmetic;
  return call(frame, [](const Program& program, const Launch& launch, const void* parameters) {
    const auto kernel = reinterpret_cast<int (*)(const void*, int)>(launch.kernel);
    return kernel(parameters, *program.alone);
  });
}

int obey(void* parameters) {
  auto* command = static_cast<Command*>(parameters);
  if (command->program != nullptr) add(command->program);
  command->handler = reinterpret_cast<void*>(handle);
  return 0;
}

}  // namespace
