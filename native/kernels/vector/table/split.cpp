#include "kernels/vector/table/split.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace dbq::table {
namespace {

constexpr int LARGEST = 15;  // of the integers

// Whole numbers p >= q >= r >= 0, and which sizes of integers -p .. p, plus -q .. q, plus -r .. r make up.
struct Factors {
    std::array<int, 3> numbers;
    uint32_t sizes = 0;
    int branches() const { return numbers[2] ? 3 : 2; }
};

// Signs of the numbers that make up v, with as many zeros as possible; false: there are none.
bool find_digits(const Factors& factors, int v, std::array<int8_t, 3>& digits) {
    int fewest = 4;
    for (int n = 0; n < 27; ++n) {
        const std::array<int, 3> d = {n % 3 - 1, n / 3 % 3 - 1, n / 9 - 1};
        const int used = int(d[0] != 0) + int(d[1] != 0) + int(d[2] != 0);
        int sum = 0;
        for (size_t i = 0; i < 3; ++i) sum += d[i] * factors.numbers[i];
        if (sum != v || used >= fewest) continue;
        fewest = used;
        for (size_t i = 0; i < 3; ++i) digits[i] = int8_t(d[i]);
    }
    return fewest < 4;
}

// Fewer branches first.
std::vector<Factors> all_factors() {
    std::vector<Factors> all;
    for (int p = 1; p <= LARGEST; ++p)
        for (int q = 0; q <= std::min(p, LARGEST - p); ++q)
            for (int r = 0; r <= std::min(q, LARGEST - p - q); ++r) {
                Factors factors{{p, q, r}};
                std::array<int8_t, 3> digits;
                for (int v = 0; v <= LARGEST; ++v)
                    if (find_digits(factors, v, digits)) factors.sizes |= 1u << v;
                all.push_back(factors);
            }
    std::stable_sort(all.begin(), all.end(),
                     [](const Factors& a, const Factors& b) { return a.branches() < b.branches(); });
    return all;
}

// The factors of kernel k, null if it needs more than three.
const Factors* factors_of(const ConvSpec& spec, int k) {
    static const std::vector<Factors> all = all_factors();
    const int8_t* const codes = spec.kernel(0, k);
    uint32_t sizes = 0;
    for (int i = 0; i < spec.taps(); ++i) {
        const int size = std::abs(int(codes[i]));
        if (size > LARGEST) return nullptr;
        sizes |= 1u << size;
    }
    for (const Factors& factors : all)
        if ((sizes & ~factors.sizes) == 0) return &factors;
    return nullptr;
}

}  // namespace

int branches_of(const ConvSpec& spec) {
    int branches = 2;
    for (int k = 0; k < spec.out.channels; ++k) {
        const Factors* const factors = factors_of(spec, k);
        if (!factors) return 0;
        branches = std::max(branches, factors->branches());
    }
    return branches;
}

Split split(const ConvSpec& spec) {
    Split split;
    split.branches = branches_of(spec);
    const size_t taps = size_t(spec.taps()), plane = size_t(spec.out.channels) * taps;
    split.codes.resize(size_t(split.branches) * plane);
    for (int k = 0; k < spec.out.channels; ++k) {
        const Factors& factors = *factors_of(spec, k);
        for (const int number : factors.numbers) split.factors.push_back(int16_t(number));
        split.factors.push_back(0);
        std::array<std::array<int8_t, 3>, 2 * LARGEST + 1> digits{};
        for (int v = -LARGEST; v <= LARGEST; ++v) find_digits(factors, v, digits[size_t(v + LARGEST)]);
        for (size_t i = 0; i < taps; ++i)
            for (size_t j = 0; j < size_t(split.branches); ++j)
                split.codes[j * plane + size_t(k) * taps + i] =
                    digits[size_t(spec.kernel(0, k)[i] + LARGEST)][j];
    }
    return split;
}

}  // namespace dbq::table
