// The handler of custom calls on a GPU: kernels are launched on XLA's stream, through the driver.
#pragma once

#include "kronop_jax/call.hpp"
#include "kronop_native/driver.hpp"

namespace {

kronop_native::LaunchKernel launch_kernel;

XLA_FFI_Error* stream_of(const XLA_FFI_CallFrame* frame, CUstream* stream) {
  XLA_FFI_Stream_Get_Args asked = {};
  asked.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  asked.ctx = frame->ctx;
  XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&asked);
  *stream = static_cast<CUstream>(asked.stream);
  return error;
}

XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame) {
  if (answers_metadata(frame)) return nullptr;
  CUstream stream = nullptr;
  if (XLA_FFI_Error* error = stream_of(frame, &stream)) return error;
  return call(frame, [&](const Program&, const Launch& launch, void* parameters) {
    return kronop_native::start(launch_kernel, launch, parameters, stream);
  });
}

int obey(void* parameters) {
  auto* command = static_cast<Command*>(parameters);
  launch_kernel = reinterpret_cast<decltype(launch_kernel)>(command->driver);
  if (command->program != nullptr) add(command->program);
  command->handler = reinterpret_cast<void*>(handle);
  return 0;
}

}  // namespace
