/* The tables of an exported operation: how its launches are made for one number of rows. */
#ifndef KRONOP_TYPES_H
#define KRONOP_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What is written over a constant word of the parameters: the address of operand `slot` plus
   `offset` bytes or, where `is_scalar` is set, scalar `slot`. */
typedef struct {
  uint16_t word, slot;
  uint8_t is_scalar;
  int64_t offset;
} KronopPatch;

/* One launch: its step, its parameters as 8-byte words, and the patches of these. */
typedef struct {
  uint16_t step, word_count, patch_count;
  uint8_t overlaps;
  uint32_t first_word, first_patch, grid[3], block[3], shared_bytes;
} KronopCall;

/* The launches for one number of rows in one case. */
typedef struct {
  uint32_t first_call, call_count;
  uint64_t workspace_bytes;
} KronopVariant;

/* What a caller passes: the operands' addresses by slot, and the scalars' bits. */
typedef struct {
  const char* addresses[KRONOP_SLOTS];
  uint64_t scalars[KRONOP_SCALARS];
  int has_source, is_plain, has_bias;
} KronopGiven;

#define KRONOP_SUCCESS 0
#define KRONOP_NULL 1
#define KRONOP_ROWS 2
#define KRONOP_MACHINE 3
#define KRONOP_ALIGNMENT 4
#define KRONOP_SOURCE 5
#define KRONOP_MEMORY 6
#define KRONOP_KERNEL 7
#define KRONOP_THREADS 8
#define KRONOP_LARGE 9
#define KRONOP_DRIVER 1000

#endif
