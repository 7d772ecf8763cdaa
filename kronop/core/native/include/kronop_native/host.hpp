// Programs on a CPU: kernels are functions of this process.
#pragma once

#include <stdlib.h>

#include "kronop_native/program.hpp"

namespace kronop_native {

class Host {
 public:
  explicit Host(const Program& program) : alone_(*program.alone) {}

  // Of the calling thread, which keeps it.
  uint64_t scratch(int64_t nbytes) const {
    constexpr uint64_t kLine = 64;
    static thread_local struct Memory {
      ~Memory() { free(place); }
      void* place = nullptr;
      int64_t nbytes = 0;
    } memory;
    if (memory.nbytes < nbytes) {
      free(memory.place);
      memory.place = aligned_alloc(kLine, (nbytes + kLine - 1) / kLine * kLine);
      memory.nbytes = memory.place == nullptr ? 0 : nbytes;
    }
    return reinterpret_cast<uint64_t>(memory.place);
  }

  int place(void*, uint64_t) const { return 1; }  // There are no tensor maps on a host.
  int operator()(const Launch& launch, const void* parameters) const {
    return reinterpret_cast<int (*)(const void*, int)>(launch.kernel)(parameters, alone_);
  }

 private:
  int alone_;
};

inline int begin(void* parameters) {
  auto* start = static_cast<Start*>(parameters);
  interface = start->interface;
  start->make = reinterpret_cast<void*>(make<Host>);
  return 0;
}

}  // namespace kronop_native
