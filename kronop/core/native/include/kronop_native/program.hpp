// Programs of recorded launches as functions of tvm-ffi: a call reads tensors through DLPack,
// compares them with those of the call that was recorded, and launches with their addresses.
//
// Only tvm-ffi's C interface is used: it compiles in a tenth of the time of the C++ one.
#pragma once

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "kronop_native/launches.hpp"

namespace kronop_native {

constexpr uint64_t kAlignment = 16;  // Of operands: kernels ask for no more.
constexpr int kMostAxes = 16, kMostSlots = 1024;

// What of a tensor decides a call, besides its address.
struct Facts {
  DLDevice device;
  DLDataType type;
  int32_t axes, low;  // The address modulo kAlignment.
  int64_t shape[kMostAxes], strides[kMostAxes];
};

// The bounds of a slot's memory, in bytes from its address.
struct Span {
  int64_t slot, below, above;
};

template <class Item>
struct List {
  const Item* items;
  int64_t count;
  const Item* begin() const { return items; }
  const Item* end() const { return items + count; }
};

// Two slots.
struct Pair {
  int64_t one, other;
};

// Python keeps it as long as its function, and fills in all but the facts.
struct Program {
  List<Launch> launches;
  List<int64_t> slots;       // Of each tensor that a call gives.
  List<Span> read, written;  // Memory of callers.
  List<Pair> shared, apart;  // Slots with the same address, and with different ones.
  int64_t slot_count;
  int64_t
      result;  // The slot of a result that the allocator of the tensors' framework makes; or -1.
  int64_t scratch_bytes;
  const int* alone;  // See HostKernel; not used on a GPU.
  void* context;     // That of the GPU; not used on a host.
  Facts* facts;      // Of the tensors that a call gives, and of the result.
};
static_assert(sizeof(Facts) == 280 && sizeof(Program) == 144);

// Functions of tvm-ffi, which is loaded for Python alone.
struct Interface {
  decltype(&TVMFFIEnvTensorAlloc) make;
  decltype(&TVMFFIEnvGetStream) stream;
  decltype(&TVMFFIObjectDecRef) drop;
  decltype(&TVMFFIFunctionCreate) function;
};
inline Interface interface;

// What a call returns instead of a result.
constexpr int64_t kDone = 1, kNotMine = 0;

// A tensor's object begins with a header.
inline const DLTensor* tensor_in(TVMFFIObjectHandle object) {
  return reinterpret_cast<const DLTensor*>(static_cast<const TVMFFIObject*>(object) + 1);
}

inline const DLTensor* tensor_of(const TVMFFIAny& item) {
  if (item.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(item.v_ptr);
  if (item.type_index != kTVMFFITensor) return nullptr;
  return tensor_in(item.v_obj);
}

inline uint64_t address_of(const DLTensor& tensor) {
  return reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset;
}

inline int64_t stride_of(const DLTensor& tensor, int axis) {
  if (tensor.strides != nullptr) return tensor.strides[axis];
  int64_t stride = 1;
  for (int inner = tensor.ndim - 1; inner > axis; --inner) stride *= tensor.shape[inner];
  return stride;
}

inline bool learn(const DLTensor& tensor, Facts* facts) {
  if (tensor.ndim > kMostAxes) return false;
  facts->device = tensor.device;
  facts->type = tensor.dtype;
  facts->axes = tensor.ndim;
  facts->low = int32_t(address_of(tensor) % kAlignment);
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    facts->shape[axis] = tensor.shape[axis];
    facts->strides[axis] = stride_of(tensor, axis);
  }
  return true;
}

inline bool fits(const DLTensor& tensor, const Facts& facts) {
  if (tensor.device.device_type != facts.device.device_type ||
      tensor.device.device_id != facts.device.device_id || tensor.dtype.code != facts.type.code ||
      tensor.dtype.bits != facts.type.bits || tensor.dtype.lanes != facts.type.lanes ||
      tensor.ndim != facts.axes || int32_t(address_of(tensor) % kAlignment) != facts.low ||
      address_of(tensor) == 0) {
    return false;
  }
  for (int axis = 0; axis < facts.axes; ++axis) {
    if (tensor.shape[axis] != facts.shape[axis] || stride_of(tensor, axis) != facts.strides[axis])
      return false;
  }
  return true;
}

inline bool crosses(const Span& a, const Span& b, const uint64_t* addresses) {
  return addresses[a.slot] + a.below < addresses[b.slot] + b.above &&
         addresses[b.slot] + b.below < addresses[a.slot] + a.above;
}

// Whether memory that is written overlaps no other, and tensors lie as they did.
inline bool lies_as_recorded(const Program& program, const uint64_t* addresses) {
  for (const Pair& pair : program.shared)
    if (addresses[pair.one] != addresses[pair.other]) return false;
  for (const Pair& pair : program.apart)
    if (addresses[pair.one] == addresses[pair.other]) return false;
  for (const Span& written : program.written) {
    for (const Span& read : program.read)
      if (crosses(written, read, addresses)) return false;
  }
  return true;
}

// A tensor of the framework whose tensors the call was given. It is freed when this is, unless it
// becomes the call's result.
class Made {
 public:
  ~Made() {
    if (object_ != nullptr) interface.drop(object_);
  }
  bool make(DLDevice device, DLDataType type, int32_t axes, int64_t* shape) {
    DLTensor like = {};
    like.device = device;
    like.dtype = type;
    like.ndim = axes;
    like.shape = shape;
    return interface.make(&like, &object_) == 0;
  }
  uint64_t address() const { return address_of(*tensor_in(object_)); }
  void give(TVMFFIAny* result) {
    result->type_index = kTVMFFITensor;
    result->zero_padding = 0;
    result->v_obj = static_cast<TVMFFIObject*>(object_);
    object_ = nullptr;
  }

 private:
  TVMFFIObjectHandle object_ = nullptr;
};

inline void answer(TVMFFIAny* result, int64_t value) {
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = value;
}

// A call: tensors in the order of `slots`. `Device` has scratch memory, and runs launches. An error
// is that of an allocator, which tvm-ffi keeps.
template <class Device>
int call(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  const Program& program = *static_cast<const Program*>(self);
  uint64_t addresses[kMostSlots];
  answer(result, kNotMine);
  if (count != program.slots.count) return 0;
  for (int32_t at = 0; at < count; ++at) {
    const DLTensor* tensor = tensor_of(args[at]);
    if (tensor == nullptr || !fits(*tensor, program.facts[at])) return 0;
    addresses[program.slots.items[at]] = address_of(*tensor);
  }
  if (!lies_as_recorded(program, addresses)) return 0;
  Made made;
  if (program.result >= 0) {
    Facts& like = program.facts[program.slots.count];
    if (!made.make(like.device, like.type, like.axes, like.shape)) return -1;
    addresses[program.result] = made.address();
    if (addresses[program.result] == 0 || addresses[program.result] % kAlignment) return 0;
  }
  Device device(program);
  if (program.scratch_bytes > 0) {
    addresses[program.slot_count] = device.scratch(program.scratch_bytes);
    if (addresses[program.slot_count] == 0) return -1;
  }
  const auto own = [&](int64_t slot) { return addresses[slot]; };
  for (const Launch& launch : program.launches) {
    if (const int status = launched(launch, own, device)) {
      answer(result, -int64_t(status));
      return 0;
    }
  }
  if (program.result >= 0) {
    made.give(result);
  } else {
    answer(result, kDone);
  }
  return 0;
}

// A function of a program, from its address, the tensors that it was recorded with, and the result.
template <class Device>
int make(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  auto* const program = reinterpret_cast<Program*>(args[0].v_int64);
  answer(result, kNotMine);
  if (count != program->slots.count + 2 || program->slot_count >= kMostSlots) return 0;
  for (int32_t at = 1; at < count; ++at) {
    const DLTensor* tensor = tensor_of(args[at]);
    if (tensor == nullptr || !learn(*tensor, program->facts + at - 1)) return 0;
  }
  TVMFFIObjectHandle made;
  if (interface.function(program, call<Device>, nullptr, &made)) return -1;
  result->type_index = kTVMFFIFunction;
  result->v_obj = static_cast<TVMFFIObject*>(made);
  return 0;
}

// Python's first call, which gives functions and takes `make` as one of tvm-ffi.
struct Start {
  Interface interface;
  void* driver[5];  // In the order of Driver; not used on a host.
  void* make;       // Out.
};

}  // namespace kronop_native
