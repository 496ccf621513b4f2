// Vectors of sixteen 32-bit lanes: AVX-512's, or two halves of AVX2's that go by the same names.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace splitserve {

// Whether 32 registers hold sixteen lanes each, or 16 hold eight.
#ifdef __AVX512BF16__
constexpr bool kIsWide = true;
#else
constexpr bool kIsWide = false;
#endif

}  // namespace splitserve

#ifndef __AVX512BF16__
#include "halves_of_bytes.h"
#endif

// Where bytes can be multiplied: AVX-512 has that from VNNI on, AVX2 always.
#if defined(__AVX512VNNI__) || !defined(__AVX512BF16__)
#define SPLITSERVE_MULTIPLIES_BYTES
#endif
