/* Handles and launches on the host: a kernel is a function that shares its work by OpenMP. */
#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdlib.h>
#if KRONOP_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* The threads are decided when the handle is made, so that sizes and runs agree. */
struct KRONOP_HANDLE {
  int threads;
};

static int kronop_open(struct KRONOP_HANDLE* handle) {
  KRONOP_REQUIRE
#if KRONOP_TILES
  /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA: Linux lets a process use tiles that asks for them. */
  if (syscall(SYS_arch_prctl, 0x1023, 18) != 0) return KRONOP_MACHINE;
#endif
#ifdef _OPENMP
  handle->threads = omp_get_max_threads();
#else
  handle->threads = 1;
#endif
  return KRONOP_SUCCESS;
}

static void kronop_close(struct KRONOP_HANDLE* handle) { (void)handle; }

/* The last of the recorded numbers of threads that is not above the handle's. */
static int kronop_team(const struct KRONOP_HANDLE* handle) {
  int at = 0;
  while (at + 1 < KRONOP_TEAMS && kronop_threads[at + 1] <= handle->threads) ++at;
  return at;
}

static int kronop_launch(const struct KRONOP_HANDLE* handle, const KronopCall* call,
                         uint64_t* words, void* stream) {
  (void)handle, (void)stream;
  return kronop_steps[call->step](words, 0) ? KRONOP_KERNEL : KRONOP_SUCCESS;
}
