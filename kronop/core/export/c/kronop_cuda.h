/* Handles and launches on a GPU, through the driver alone. */
#include <cuda.h>
#include <stdlib.h>

/* Libraries and kernels belong to no context: a launch goes to the one that is current. */
struct KRONOP_HANDLE {
  CUlibrary libraries[KRONOP_STEPS];
  CUkernel kernels[KRONOP_STEPS];
};

static void kronop_close(struct KRONOP_HANDLE* handle) {
  for (int step = 0; step < KRONOP_STEPS; ++step)
    if (handle->libraries[step] != NULL) (void)cuLibraryUnload(handle->libraries[step]);
}

static CUresult kronop_load(struct KRONOP_HANDLE* handle, CUdevice device) {
  CUresult error = CUDA_SUCCESS;
  for (int step = 0; step < KRONOP_STEPS && error == CUDA_SUCCESS; ++step) {
    const KronopStep* of = &kronop_steps[step];
    error = cuLibraryLoadData(&handle->libraries[step], of->image, NULL, NULL, 0, NULL, NULL, 0);
    if (error == CUDA_SUCCESS)
      error = cuLibraryGetKernel(&handle->kernels[step], handle->libraries[step], of->entry);
    if (error == CUDA_SUCCESS && of->shared_bytes > 48 * 1024)
      error = cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   (int)of->shared_bytes, handle->kernels[step], device);
  }
  return error;
}

static int kronop_open(struct KRONOP_HANDLE* handle) {
  CUcontext context = NULL;
  CUdevice device = 0;
  CUresult error = cuInit(0);
  memset(handle, 0, sizeof *handle);
  if (error == CUDA_SUCCESS) error = cuCtxGetCurrent(&context);
  if (error == CUDA_SUCCESS)
    error = context != NULL ? cuCtxGetDevice(&device) : cuDeviceGet(&device, 0);
  if (error == CUDA_SUCCESS) error = kronop_load(handle, device);
  if (error == CUDA_SUCCESS) return KRONOP_SUCCESS;
  kronop_close(handle);
  return KRONOP_DRIVER + (int)error;
}

static int kronop_team(const struct KRONOP_HANDLE* handle) {
  (void)handle;
  return 0;
}

static int kronop_launch(const struct KRONOP_HANDLE* handle, const KronopCall* call,
                         uint64_t* words, void* stream) {
  CUlaunchAttribute early;
  CUlaunchConfig config;
  void* parameters[1];
  memset(&early, 0, sizeof early);
  memset(&config, 0, sizeof config);
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  config.gridDimX = call->grid[0], config.gridDimY = call->grid[1], config.gridDimZ = call->grid[2];
  config.blockDimX = call->block[0], config.blockDimY = call->block[1];
  config.blockDimZ = call->block[2];
  config.sharedMemBytes = call->shared_bytes;
  config.hStream = (CUstream)stream;
  config.attrs = call->overlaps ? &early : NULL;
  config.numAttrs = call->overlaps ? 1 : 0;
  parameters[0] = words;
  CUresult error =
      cuLaunchKernelEx(&config, (CUfunction)handle->kernels[call->step], parameters, NULL);
  return error == CUDA_SUCCESS ? KRONOP_SUCCESS : KRONOP_DRIVER + (int)error;
}
