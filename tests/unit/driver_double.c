/* Stands in for libcuda.so.1 where there is no driver: answers as one, and prints what it is asked.
   Handles are small numbers: context 100 + device, library 7, kernel 9, event 3. A program that is
   linked to it makes context 100 current with DOUBLE_CONTEXT, and has so many 8-byte words of each
   launch's parameters printed as DOUBLE_WORDS says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int id, padding, value[16];
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;
} Config;

static long contexts[16];
static int depth = 0;

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* count) {
  *count = atoi(getenv("DOUBLE_DEVICES"));
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal > 1 ? 101 : 0;
}
int cuDevicePrimaryCtxRetain(long* context, int device) {
  *context = 100 + device;
  return 0;
}
int cuCtxGetCurrent(long* context) {
  const int has_context = getenv("DOUBLE_CONTEXT") != NULL;
  *context = depth ? contexts[depth - 1] : has_context ? 100 : 0;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuCtxPushCurrent(long context) {
  contexts[depth++] = context;
  return 0;
}
int cuCtxPopCurrent(long* context) {
  *context = contexts[--depth];
  return 0;
}

int cuLibraryLoadData(long* library, const char* code, void* a, void* b, unsigned n, void* c,
                      void* d, unsigned m) {
  (void)a, (void)b, (void)n, (void)c, (void)d, (void)m;
  const char* text = code + 64; /* Behind the header of an ELF file. */
  printf("load %s\n", text);
  *library = 7;
  return strcmp(text, "BAD") == 0 ? 200 : 0;
}

int cuLibraryUnload(long library) {
  printf("unload %ld\n", library);
  return 0;
}

int cuLibraryGetKernel(long* kernel, long library, const char* name) {
  printf("kernel %s of %ld\n", name, library);
  *kernel = 9;
  return 0;
}

int cuKernelSetAttribute(int attribute, int value, long kernel, int device) {
  printf("attribute %d = %d of %ld on %d\n", attribute, value, kernel, device);
  return 0;
}

int cuLaunchKernelEx(const Config* config, long function, void** parameters, void** extra) {
  const long long* values = parameters[0];
  char attributes[64] = "";
  if (config->attribute_count) {
    const Attribute* first = config->attributes;
    snprintf(attributes, sizeof attributes, " attribute %d = %d", first->id, first->value[0]);
  }
  printf(
      "launch %ld grid %u %u %u block %u %u %u shared %u stream %ld values %lld %lld in %ld%s%s\n",
      function, config->grid[0], config->grid[1], config->grid[2], config->block[0],
      config->block[1], config->block[2], config->shared, (long)config->stream, values[0],
      values[1], depth ? contexts[depth - 1] : 0, extra ? " extra" : "", attributes);
  const char* words = getenv("DOUBLE_WORDS");
  for (int at = 0; words && at < atoi(words); ++at) printf("word %016llx\n", values[at]);
  return values[1] == 2 || values[1] == 1 ? (int)values[1] : 0;
}

int cuGetErrorName(int error, const char** text) {
  *text = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = error ? "as told" : "";
  return 0;
}
int cuEventCreate(long* event, unsigned flags) {
  *event = 3 + flags;
  return 0;
}
int cuEventRecord(long event, void* stream) { return event == 3 && stream ? 0 : 1; }
int cuEventSynchronize(long event) { return event == 3 ? 0 : 1; }
int cuEventElapsedTime(float* ms, long start, long end) {
  *ms = 0.25f;
  return start != end;
}
int cuEventDestroy(long event) { return event == 3 ? 0 : 1; }

#define ENTRY(name) {#name, (void*)name}
static const struct {
  const char* name;
  void* function;
} entries[] = {
    ENTRY(cuInit),
    ENTRY(cuDeviceGetCount),
    ENTRY(cuDeviceGet),
    ENTRY(cuDevicePrimaryCtxRetain),
    ENTRY(cuCtxGetCurrent),
    ENTRY(cuCtxPushCurrent),
    ENTRY(cuCtxPopCurrent),
    ENTRY(cuLibraryLoadData),
    ENTRY(cuLibraryGetKernel),
    ENTRY(cuKernelSetAttribute),
    ENTRY(cuLaunchKernelEx),
    ENTRY(cuGetErrorName),
    ENTRY(cuGetErrorString),
    ENTRY(cuEventCreate),
    ENTRY(cuEventRecord),
    ENTRY(cuEventSynchronize),
    ENTRY(cuEventElapsedTime),
    ENTRY(cuEventDestroy),
};

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                        int* status) {
  (void)version, (void)flags;
  *function = 0;
  for (unsigned i = 0; i < sizeof entries / sizeof *entries; ++i)
    if (strcmp(entries[i].name, name) == 0) *function = entries[i].function;
  if (status) *status = *function ? 0 : 1;
  return *function ? 0 : 500;
}
