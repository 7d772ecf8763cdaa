// Stands in for XLA and for the driver's cuLaunchKernelEx: calls a handler with buffers at given
// addresses, and keeps what the handler launches.
#include <cuda.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

namespace {

// What is asked of the double, 8-byte words all: see test_jax_cuda.py.
struct Question {
  XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*);
  int64_t key, arguments, results;
  const uint64_t* addresses;
  const int64_t* sizes;  // Of the parameters of each launch, in bytes.
  void* launcher;        // Out: the double of cuLaunchKernelEx.
  int64_t launches;      // Out.
  const void* launched;  // Out: as many of `Launched`.
  const char* message;   // Out: the error's, or null.
  int64_t major;         // Out: the version of the interface that the handler tells.
};

struct Launched {
  int64_t kernel, stream, grid[3], block[3], shared_bytes, overlaps, words[128];
};

Launched launched[16];
const int64_t* sizes;
int64_t count;
const char* message;

CUresult launch(const CUlaunchConfig* config, CUfunction kernel, void** parameters, void**) {
  Launched& kept = launched[count++];
  kept.kernel = reinterpret_cast<int64_t>(kernel);
  kept.stream = reinterpret_cast<int64_t>(config->hStream);
  const unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  for (int at = 0; at < 3; ++at) kept.grid[at] = grid[at], kept.block[at] = block[at];
  kept.shared_bytes = config->sharedMemBytes;
  kept.overlaps =
      config->numAttrs ? config->attrs[0].value.programmaticStreamSerializationAllowed : 0;
  memcpy(kept.words, parameters[0], sizes[count - 1]);
  return CUDA_SUCCESS;
}

XLA_FFI_Error* stream_of(XLA_FFI_Stream_Get_Args* asked) {
  asked->stream = reinterpret_cast<void*>(77);
  return nullptr;
}

XLA_FFI_Error* error_of(XLA_FFI_Error_Create_Args* made) {
  message = made->message;
  return reinterpret_cast<XLA_FFI_Error*>(1);
}

void ask_version(Question& question) {
  XLA_FFI_Metadata metadata = {};
  XLA_FFI_Metadata_Extension extension = {};
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = {};
  frame.extension_start = &extension.extension_base;
  question.handler(&frame);
  question.major = metadata.api_version.major_version * 1000 + metadata.api_version.minor_version;
}

void call(Question& question) {
  XLA_FFI_Api api = {};
  api.XLA_FFI_Stream_Get = stream_of;
  api.XLA_FFI_Error_Create = error_of;
  XLA_FFI_Buffer buffers[16] = {};
  void* places[16];
  for (int64_t at = 0; at < question.arguments + question.results; ++at) {
    buffers[at].data = reinterpret_cast<void*>(question.addresses[at]);
    places[at] = &buffers[at];
  }
  XLA_FFI_Scalar scalar = {XLA_FFI_DataType_S64, &question.key};
  void* attributes[] = {&scalar};
  XLA_FFI_CallFrame frame = {};
  frame.api = &api;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args.size = question.arguments, frame.args.args = places;
  frame.rets.size = question.results, frame.rets.rets = places + question.arguments;
  frame.attrs.size = 1, frame.attrs.attrs = attributes;
  count = 0, message = nullptr, sizes = question.sizes;
  question.handler(&frame);
  question.launches = count, question.launched = launched, question.message = message;
}

}  // namespace

extern "C" int xla_double(void* asked, int) {
  Question& question = *static_cast<Question*>(asked);
  question.launcher = reinterpret_cast<void*>(launch);
  if (question.handler != nullptr) ask_version(question), call(question);
  return 0;
}
