// Programs on a GPU: kernels are launched on the current stream of the tensors' framework.
#pragma once

#include "kronop_native/driver.hpp"
#include "kronop_native/program.hpp"

namespace kronop_native {

inline struct Driver {
  LaunchKernel launch;
  CUresult (*current)(CUcontext*);
  CUresult (*push)(CUcontext);
  CUresult (*pop)(CUcontext*);
  CUresult (*replace)(CUtensorMap*, void*);
} driver;

// The context of a GPU is current while this lives.
class Gpu {
 public:
  explicit Gpu(const Program& program) : device_(program.facts[0].device) {
    const auto context = static_cast<CUcontext>(program.context);
    CUcontext current = nullptr;
    driver.current(&current);
    pushed_ = current != context && driver.push(context) == CUDA_SUCCESS;
    stream_ = static_cast<CUstream>(interface.stream(device_.device_type, device_.device_id));
  }
  ~Gpu() {
    CUcontext own;
    if (pushed_) driver.pop(&own);
  }

  // Freed before the kernels have run: the allocator gives it only to work that follows them.
  uint64_t scratch(int64_t nbytes) {
    const bool made = scratch_.make(device_, DLDataType{kDLUInt, 8, 1}, 1, &nbytes);
    return made ? scratch_.address() : 0;
  }

  int place(void* map, uint64_t address) const {
    return driver.replace(static_cast<CUtensorMap*>(map), reinterpret_cast<void*>(address));
  }
  int operator()(const Launch& launch, void* parameters) const {
    return start(driver.launch, launch, parameters, stream_);
  }

 private:
  DLDevice device_;
  CUstream stream_;
  Made scratch_;
  bool pushed_;
};

inline int begin(void* parameters) {
  auto* start = static_cast<Start*>(parameters);
  interface = start->interface;
  memcpy(&driver, start->driver, sizeof(driver));
  start->make = reinterpret_cast<void*>(make<Gpu>);
  return 0;
}

}  // namespace kronop_native
