// out = 1 / (1 + e^-x), each value by itself: the same bits wherever it lies among others.
#include "element.h"
#include "operations.h"

namespace splitserve {
namespace {

void sigmoid(const float* values, int64_t count, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __m512 x = _mm512_maskz_loadu_ps(mask, values + i);
    const __m512 decay = exponential(_mm512_sub_ps(_mm512_setzero_ps(), x));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_div_ps(one, _mm512_add_ps(one, decay)));
  }
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_sigmoid(const float* values, int64_t count, float* out) {
  splitserve::sigmoid(values, count, out);
}
