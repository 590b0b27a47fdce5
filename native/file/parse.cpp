// Bytes of a .dbq file -> Program. Reads and checks in one pass, in the order of docs/format.md.

#include <algorithm>

#include "file/json.h"
#include "file/parser.h"
#include "ops/table.h"

namespace dbq {

Program Parser::program() {
    program_.name = bytes.text(bytes.u16());
    program_.metadata = bytes.text(bytes.u32());
    if (!is_json_object(program_.metadata)) fail(DBQ_BAD_FILE, "its facts are not a JSON object");
    const uint32_t tensors = in_range("tensors", bytes.u32(), 1, MAX_TENSORS);
    for (uint32_t i = 0; i < tensors; ++i) program_.tensors.push_back(read_tensor());
    written_.resize(tensors);
    largest_.resize(tensors);
    // Version 1 has one output, without a name.
    const uint32_t outputs = version_ == 1 ? 1 : in_range("outputs", bytes.u32(), 1, tensors);
    for (uint32_t i = 0; i < outputs; ++i) read_output();
    const uint32_t operations = in_range("operations", bytes.u32(), 1, MAX_TENSORS);
    for (uint32_t i = 0; i < operations; ++i) read_operation(i);
    for (uint32_t i = 0; i < tensors; ++i)
        if (!written_[i]) fail(DBQ_BAD_FILE, "no operation writes tensor %u", i);
    if (bytes.left() > 0) fail(DBQ_BAD_FILE, "%zu bytes after the last operation", bytes.left());
    return std::move(program_);
}

Tensor Parser::read_tensor() {
    Tensor tensor;
    tensor.type = static_cast<Type>(in_range("type of a tensor", bytes.u8(), 0, 3));
    tensor.shape.channels = int(in_range("channels of a tensor", bytes.u32(), 1, MAX_SIDE));
    tensor.shape.height = int(in_range("height of a tensor", bytes.u32(), 1, MAX_SIDE));
    tensor.shape.width = int(in_range("width of a tensor", bytes.u32(), 1, MAX_SIDE));
    if (tensor.shape.pixels() > MAX_PIXELS)
        fail(DBQ_BAD_FILE, "%zu pixels in a tensor, expected at most %u", tensor.shape.pixels(), MAX_PIXELS);
    tensor.scale = bytes.f32();
    check_float("scale of a tensor", tensor.scale);
    if (tensor.scale <= 0) fail(DBQ_BAD_FILE, "scale of a tensor: not above 0");
    return tensor;
}

void Parser::read_output() {
    NamedOutput output;
    output.tensor = index(bytes.u32());
    if (version_ > 1) output.name = bytes.text(bytes.u16());
    if (tensor(output.tensor).type != Type::F32)
        fail(DBQ_BAD_FILE, "tensor %u is an output and not of type f32", output.tensor);
    if (!output_tensors_.insert(output.tensor).second || !output_names_.insert(output.name).second)
        fail(DBQ_BAD_FILE, "two outputs of one name, or of one tensor");
    program_.outputs.push_back(std::move(output));
}

uint32_t Parser::index(uint32_t tensor) const {
    if (tensor >= program_.tensors.size())
        fail(DBQ_BAD_FILE, "tensor %u, but there are %zu", tensor, program_.tensors.size());
    return tensor;
}

void Parser::read_operation(uint32_t i) {
    program_.operations.emplace_back();
    Operation& op = program_.operations.back();
    try {
        const size_t kind = in_range("kind", bytes.u8(), 0, uint32_t(KIND_COUNT - 1));
        op.kind = KINDS[kind].name;
        op.name = bytes.text(bytes.u16());
        if ((i == 0) != (kind == LOOKUP))
            fail(DBQ_BAD_FILE, "a lookup must be the first operation, and no other");
        KINDS[kind].read(*this, op);
        // Marked now that the operation is complete: it cannot read what it writes itself.
        for (const uint32_t tensor : op.outputs) {
            if (written_[tensor]) fail(DBQ_BAD_FILE, "tensor %u is written twice", tensor);
            written_[tensor] = true;
        }
    } catch (Error& error) {
        error.text = "operation " + std::to_string(i) + " (" + op.name.substr(0, 80) + "): " + error.text;
        throw;
    }
}

const Tensor& Parser::readable(uint32_t number, Type widest) {
    if (!written_[index(number)]) fail(DBQ_BAD_FILE, "tensor %u is read before it is written", number);
    const Tensor& found = tensor(number);
    if (found.type > widest)
        fail(DBQ_BAD_FILE, "tensor %u is of type %d, expected at most %d", number, int(found.type),
             int(widest));
    return found;
}

const Tensor& Parser::input(Operation& op, Type widest) {
    op.inputs.push_back(bytes.u32());
    return readable(op.inputs.back(), widest);
}

const Tensor& Parser::output(Operation& op) {
    op.outputs.push_back(index(bytes.u32()));
    return tensor(op.outputs.back());
}

std::vector<Output> Parser::results(Operation& op, uint32_t sums) {
    const uint8_t count = bytes.u8();
    if (count == 0) fail(DBQ_BAD_FILE, "no results, expected at least one");
    std::vector<Output> results;
    for (int i = 0; i < count; ++i) {
        const Tensor& written = output(op);
        check_same_shape("a result", written.shape, tensor(op.outputs[0]).shape);
        results.push_back(result(written, sums));
        const Output& last = results.back();
        largest(op.outputs.back()) = int32_t(std::max(-last.low, last.high));
    }
    return results;
}

Output Parser::result(const Tensor& tensor, uint32_t sums) {
    const int32_t low = bytes.i32(), high = bytes.i32();
    check_clip(tensor.type, low, high);
    const uint32_t channels = uint32_t(tensor.shape.channels);
    Output result;
    result.type = tensor.type;
    result.low = float(low);
    result.high = float(high);
    result.scale = bytes.floats(channels * sums);
    result.offset = bytes.floats(channels);
    for (const float scale : result.scale) check_float("a scale", scale);
    for (const float offset : result.offset) check_float("an offset", offset);
    return result;
}

Window Parser::window(bool dilated) {
    Window w;
    for (int* value : {&w.kernel_h, &w.kernel_w, &w.stride_h, &w.stride_w, &w.pad_top, &w.pad_left})
        *value = bytes.u16();
    if (dilated) {
        w.dilation_h = bytes.u16();
        w.dilation_w = bytes.u16();
    }
    check_window(w);
    return w;
}

namespace {

constexpr uint8_t MAGIC[8] = {0x89, 'D', 'B', 'Q', '\r', '\n', 0x1A, '\n'};
constexpr uint32_t VERSION = 2;  // the newest; version 1 is read as well
constexpr size_t HEADER = 32;

struct Versioned {
    uint32_t version;
    Bytes body;
};

Versioned body_of(Bytes file) {
    if (file.size < HEADER || std::memcmp(file.data, MAGIC, sizeof MAGIC) != 0)
        fail(DBQ_BAD_FILE, "this is no .dbq file: it does not start with the 32 bytes of its header");
    Reader header(file);
    header.bytes(sizeof MAGIC);
    const uint32_t version = header.u32(), checksum = header.u32();
    const uint64_t length = header.u64(), reserved = header.u64();
    if (version < 1 || version > VERSION)
        fail(DBQ_BAD_VERSION, "format version %u, this library reads 1 to %u: update libdbq, or export again",
             version, VERSION);
    if (length != header.left())
        fail(DBQ_BAD_FILE, "%zu bytes after the header, %llu expected", header.left(),
             static_cast<unsigned long long>(length));
    if (reserved != 0) fail(DBQ_BAD_FILE, "the last 8 bytes of the header are not 0");
    const Bytes body = header.bytes(length);
    const uint32_t found = crc32(body);
    if (found != checksum) fail(DBQ_BAD_FILE, "checksum %08x, expected %08x", found, checksum);
    return {version, body};
}

}  // namespace

Program parse(Bytes file) {
    const Versioned found = body_of(file);
    return Parser(found.body, found.version).program();
}

}  // namespace dbq
