// Included before any header of CUTLASS: makes CUTLASS 4.2 and 4.8 compile with NVRTC 13.0 to 13.5,
// whose CCCL versions differ.
#pragma once

#include <cute/config.hpp>

// If defined, CUTLASS 4.2 declares std::tuple_size and std::tuple_element, with other template
// parameters than CCCL from 3.2 on. CUTLASS's 2.x kernels use neither.
#undef CUTE_STL_NAMESPACE_IS_CUDA_STD
