/* Runs the recorded launches for the addresses and scalars that are given. */

static const KronopVariant* kronop_variant(const struct KRONOP_HANDLE* handle, int rows,
                                           const KronopGiven* given, int aligned) {
  const int scalars = given->has_source ? 1 : given->is_plain ? 2 : 0;
  const int at = scalars + 3 * (given->has_bias + 2 * aligned);
  return &kronop_variants[kronop_choice[rows][kronop_team(handle)][at]];
}

/* The place of the largest recorded number of rows that is not above `rows`, and in parts where
   the rest can follow; -1 if there is none. */
static int kronop_part(int64_t rows) {
  for (int at = KRONOP_COUNTS - 1; at >= 0; --at)
    if (kronop_rows[at] == rows || (KRONOP_IN_PARTS && kronop_rows[at] < rows)) return at;
  return -1;
}

/* The address, rounded up to the workspace's alignment. */
static char* kronop_rounded(void* workspace) {
  return (char*)(((uintptr_t)workspace + KRONOP_WORKSPACE_ALIGNMENT - 1) /
                 KRONOP_WORKSPACE_ALIGNMENT * KRONOP_WORKSPACE_ALIGNMENT);
}

/* Whether all addresses, at the row `start`, are as aligned as the descriptions promise. */
static int kronop_keeps_promises(const KronopGiven* given, int64_t start) {
  for (int slot = 0; slot < KRONOP_SLOTS; ++slot) {
    const char* address = given->addresses[slot];
    if (address != NULL &&
        (uintptr_t)(address + start * kronop_row_bytes[slot]) % kronop_promised[slot])
      return 0;
  }
  return 1;
}

static int kronop_run_part(const struct KRONOP_HANDLE* handle, int rows, const KronopGiven* given,
                           int64_t start, void* stream) {
  const char* addresses[KRONOP_SLOTS];
  int aligned = 1;
  for (int slot = 0; slot < KRONOP_SLOTS; ++slot) {
    addresses[slot] = given->addresses[slot];
    if (addresses[slot] == NULL) continue;
    addresses[slot] += start * kronop_row_bytes[slot];
    aligned &= (uintptr_t)addresses[slot] % 16 == 0;
  }
  const KronopVariant* variant = kronop_variant(handle, rows, given, aligned);
  for (uint32_t at = 0; at < variant->call_count; ++at) {
    const KronopCall* call = &kronop_calls[variant->first_call + at];
    uint64_t words[KRONOP_MOST_WORDS] __attribute__((aligned(128)));
    memcpy(words, kronop_words + call->first_word, call->word_count * sizeof *words);
    for (int place = 0; place < call->patch_count; ++place) {
      const KronopPatch* patch = &kronop_patches[call->first_patch + place];
      words[patch->word] =
          patch->is_scalar ? given->scalars[patch->slot]
                           : (uint64_t)(uintptr_t)addresses[patch->slot] + (uint64_t)patch->offset;
    }
    const int error = kronop_launch(handle, call, words, stream);
    if (error != KRONOP_SUCCESS) return error;
  }
  return KRONOP_SUCCESS;
}

/* Whether these rows can be run, as a status. Where they can, the places of all bytes of every
   operand are numbers that do not overflow. */
static int kronop_check(int64_t rows) {
  if (rows < 0) return KRONOP_ROWS;
  for (int slot = 0; slot < KRONOP_SLOTS; ++slot)
    if (kronop_row_bytes[slot] > 0 && rows > PTRDIFF_MAX / kronop_row_bytes[slot])
      return KRONOP_LARGE;
  while (rows > 0) {
    const int part = kronop_part(rows);
    if (part < 0) return KRONOP_ROWS;
    rows %= kronop_rows[part];
  }
  return KRONOP_SUCCESS;
}

/* Bytes of workspace that are enough for rows that can be run, in every case. */
static int64_t kronop_workspace(const struct KRONOP_HANDLE* handle, int64_t rows) {
  int64_t most = 0;
  while (rows > 0) {
    const int part = kronop_part(rows);
    for (int at = 0; at < KRONOP_CASES; ++at) {
      const int variant = kronop_choice[part][kronop_team(handle)][at];
      if (variant >= 0 && (int64_t)kronop_variants[variant].workspace_bytes > most)
        most = (int64_t)kronop_variants[variant].workspace_bytes;
    }
    rows %= kronop_rows[part]; /* Parts of this size have this need. */
  }
  return most == 0 ? 0 : most + KRONOP_WORKSPACE_ALIGNMENT - 1;
}

static int kronop_run(const struct KRONOP_HANDLE* handle, int64_t rows, KronopGiven* given,
                      void* workspace, void* stream) {
  if (handle == NULL) return KRONOP_NULL;
  const int status = kronop_check(rows);
  if (status != KRONOP_SUCCESS || rows == 0) return status;
  const int64_t wanted = kronop_workspace(handle, rows);
  if (wanted > 0 && workspace == NULL) return KRONOP_NULL;
  for (int slot = 0; slot < KRONOP_SLOTS; ++slot)
    if (kronop_needed[slot] && given->addresses[slot] == NULL) return KRONOP_NULL;
  given->addresses[KRONOP_SLOTS - 1] = wanted > 0 ? kronop_rounded(workspace) : NULL;
  /* All before the first launch, which already writes to Y. Where two parts of a size keep the
     promises, all of that size do. */
  for (int64_t start = 0; start < rows;) {
    const int64_t part = kronop_rows[kronop_part(rows - start)], times = (rows - start) / part;
    if (!kronop_keeps_promises(given, start)) return KRONOP_ALIGNMENT;
    if (times > 1 && !kronop_keeps_promises(given, start + part)) return KRONOP_ALIGNMENT;
    start += times * part;
  }
  for (int64_t start = 0; start < rows;) {
    const int part = kronop_part(rows - start);
    const int error = kronop_run_part(handle, part, given, start, stream);
    if (error != KRONOP_SUCCESS) return error;
    start += kronop_rows[part];
  }
  return KRONOP_SUCCESS;
}

static const char* kronop_status_text(int status) {
  switch (status) {
    case KRONOP_SUCCESS: return "success";
    case KRONOP_NULL:
      return "a handle, an operand or the workspace is NULL; pass all but an unread Z and bias";
    case KRONOP_ROWS:
      return "the number of rows is negative, or none that the export can run; export it "
             "with this number in --rows, or in rows= of Python";
    case KRONOP_MACHINE:
      return "this machine lacks the instructions; export for a target that it has";
    case KRONOP_ALIGNMENT:
      return "an address is not aligned as the operation promises; align operands to 16 bytes, or "
             "export without the promise";
    case KRONOP_SOURCE: return "beta is not 0 and Z is NULL; pass Z, or beta = 0";
    case KRONOP_MEMORY: return "no memory for a handle; free some";
    case KRONOP_KERNEL: return "a kernel failed; its result is not to be used";
    case KRONOP_LARGE:
      return "an operand of so many rows has more bytes than an address can name; pass fewer rows";
    case KRONOP_THREADS: return "the number of threads is below 1; pass at least 1";
  }
  return status >= KRONOP_DRIVER ? "an error of the CUDA driver: its code is the status less 1000"
                                 : "no status of this library";
}
