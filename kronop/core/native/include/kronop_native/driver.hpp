// Launches on a GPU, through the driver's functions.
#pragma once

#include <cuda.h>

#include "kronop_native/launches.hpp"

namespace kronop_native {

using LaunchKernel = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);

inline int start(LaunchKernel launch_kernel, const Launch& launch, void* parameters,
                 CUstream stream) {
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

}  // namespace kronop_native
