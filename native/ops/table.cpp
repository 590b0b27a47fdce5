#include "ops/table.h"

namespace dbq {

void read_lookup(Parser&, Operation&);
void read_convolution(Parser&, Operation&);
void read_add(Parser&, Operation&);
void read_requantize(Parser&, Operation&);
void read_average_pool(Parser&, Operation&);
void read_max_pool(Parser&, Operation&);
void read_channels(Parser&, Operation&);

const Kind KINDS[] = {
    {"lookup", read_lookup},         {"convolution", read_convolution},   {"add", read_add},
    {"requantize", read_requantize}, {"average pool", read_average_pool}, {"max pool", read_max_pool},
    {"channels", read_channels},
};
const size_t KIND_COUNT = sizeof KINDS / sizeof *KINDS;

}  // namespace dbq
