// XLA's custom call to recorded launches, for hosts and GPUs alike: it finds the program that its
// attribute names, and writes the addresses of XLA's buffers into copies of packed parameters.
//
// Only XLA's C interface is used: it is stable, and compiles in a tenth of the time of the C++ one.
#pragma once

#include <atomic>

#include "kronop_native/launches.hpp"
#include "xla/ffi/api/c_api.h"

namespace {

using kronop_native::Launch;

// A program is registered once, under a key made of its contents, and lives as long as the process.
struct Program {
  int64_t key;
  const Program* next;
  const Launch* launches;
  int64_t launch_count;
  const int64_t* alignments;  // In bytes, of each buffer: arguments first, then results.
  int64_t slot_count;
  const int* alone;  // See HostKernel; not used on a GPU.
};

// Programs by key. Readers take no lock: a program is complete before it is put at the head of its
// list, and nothing is ever removed. Those who register take turns.
constexpr uint64_t kLists = 1024;
std::atomic<const Program*> programs[kLists];

std::atomic<const Program*>& list_of(int64_t key) { return programs[uint64_t(key) % kLists]; }

const Program* find(int64_t key) {
  const Program* program = list_of(key).load(std::memory_order_acquire);
  while (program != nullptr && program->key != key) program = program->next;
  return program;
}

void add(Program* program) {
  std::atomic<const Program*>& head = list_of(program->key);
  program->next = head.load(std::memory_order_relaxed);
  head.store(program, std::memory_order_release);
}

XLA_FFI_Error* failed(const XLA_FFI_CallFrame* frame, XLA_FFI_Error_Code code,
                      const char* message) {
  XLA_FFI_Error_Create_Args made = {};
  made.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  made.message = message;
  made.errc = code;
  return frame->api->XLA_FFI_Error_Create(&made);
}

// XLA asks every handler for the version of the interface that it was compiled with.
bool answers_metadata(const XLA_FFI_CallFrame* frame) {
  // Not named: versions of the interface differ in what they call the type of extensions.
  const auto* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata =
      reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return true;
}

uint64_t address_of(const XLA_FFI_CallFrame* frame, int64_t slot) {
  const int64_t arguments = frame->args.size;
  void* buffer = slot < arguments ? frame->args.args[slot] : frame->rets.rets[slot - arguments];
  return reinterpret_cast<uint64_t>(static_cast<XLA_FFI_Buffer*>(buffer)->data);
}

const char* unfit(const XLA_FFI_CallFrame* frame, const Program& program) {
  if (frame->args.size + frame->rets.size != program.slot_count) {
    return "kronop: expected as many buffers as the program was recorded with";
  }
  for (int64_t slot = 0; slot < program.slot_count; ++slot) {
    if (address_of(frame, slot) % uint64_t(program.alignments[slot])) {
      return "kronop: expected buffers at multiples of 16 bytes and scratch memory at multiples of"
             " 64; copy the array that was made from memory of another library";
    }
  }
  return nullptr;
}

// Runs the program that the call's only attribute names. `Run` returns 0 if a launch succeeded.
template <class Run>
XLA_FFI_Error* call(const XLA_FFI_CallFrame* frame, const Run& run) {
  const auto* scalar = static_cast<const XLA_FFI_Scalar*>(frame->attrs.attrs[0]);
  const Program* program = find(*static_cast<const int64_t*>(scalar->value));
  if (program == nullptr) {
    return failed(frame, XLA_FFI_Error_Code_NOT_FOUND,
                  "kronop: expected a program of this process, got one of another; trace and"
                  " compile the function in the process that runs it");
  }
  if (const char* message = unfit(frame, *program)) {
    return failed(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, message);
  }
  const auto address = [frame](int64_t slot) { return address_of(frame, slot); };
  const struct {
    const Program& program;
    const Run& run;
    int place(void*, uint64_t) const { return 1; }  // Programs with tensor maps are refused.
    int operator()(const Launch& launch, void* parameters) const {
      return run(program, launch, parameters);
    }
  } start{*program, run};
  for (int64_t at = 0; at < program->launch_count; ++at) {
    if (kronop_native::launched(program->launches[at], address, start)) {
      return failed(frame, XLA_FFI_Error_Code_INTERNAL, "kronop: a kernel did not run");
    }
  }
  return nullptr;
}

// What Python asks: the address of the handler, and that a program is added.
struct Command {
  Program* program;  // Null for none.
  void* driver;      // The driver's cuLaunchKernelEx; not used on a host.
  void* handler;     // Out.
};

}  // namespace
