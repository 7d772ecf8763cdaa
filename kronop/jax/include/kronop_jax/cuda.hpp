// The handler of custom calls on a GPU: kernels are launched on XLA's stream, through the driver.
#pragma once

#include <cuda.h>

#include "kronop_jax/call.hpp"

namespace {

CUresult (*launch_kernel)(const CUlaunchConfig*, CUfunction, void**, void**);

XLA_FFI_Error* stream_of(const XLA_FFI_CallFrame* frame, CUstream* stream) {
  XLA_FFI_Stream_Get_Args asked = {};
  asked.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  asked.ctx = frame->ctx;
  XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&asked);
  *stream = static_cast<CUstream>(asked.stream);
  return error;
}

int start(const Launch& launch, void* parameters, CUstream stream) {
  CUlaunchAttribute early = {};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = launch.grid[0], config.gridDimY = launch.grid[1];
  config.gridDimZ = launch.grid[2];
  config.blockDimX = launch.block[0], config.blockDimY = launch.block[1];
  config.blockDimZ = launch.block[2];
  config.sharedMemBytes = launch.shared_bytes;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = launch.overlaps;
  return launch_kernel(&config, static_cast<CUfunction>(launch.kernel), &parameters, nullptr);
}

XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame) {
  if (answers_metadata(frame)) return nullptr;
  CUstream stream = nullptr;
  if (XLA_FFI_Error* error = stream_of(frame, &stream)) return error;
  return call(frame, [&](const Program&, const Launch& launch, void* parameters) {
    return start(launch, parameters, stream);
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
