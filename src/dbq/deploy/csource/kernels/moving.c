/* === channels: needs put code, code at === */
/* Channels of other tensors; source 65535 is a channel of zeros. */
static void channels(const tensor_t *to, const tensor_t *const *from, const uint16_t *sources) {
    const uint32_t pixels = (uint32_t)to->height * to->width;
    for (uint32_t c = 0u; c < to->channels; c++) {
        const uint32_t source = sources[2u * c];
        for (uint32_t p = 0u; p < pixels; p++) {
            put_code(to, c, p, source == 65535u ? 0 : code_at(from[source], sources[2u * c + 1u], p));
        }
    }
}

/* === pixels: needs put code, code at === */
/* Rows and columns at other places; 65535 is a row or a column of zeros. */
static void pixels(const tensor_t *from, const tensor_t *to, const uint16_t *rows, const uint16_t *columns) {
    for (uint32_t c = 0u; c < to->channels; c++) {
        for (uint32_t y = 0u; y < to->height; y++) {
            for (uint32_t x = 0u; x < to->width; x++) {
                const int is_zero = rows[y] == 65535u || columns[x] == 65535u;
                const uint32_t place = (uint32_t)rows[y] * from->width + columns[x];
                put_code(to, c, y * to->width + x, is_zero != 0 ? 0 : code_at(from, c, place));
            }
        }
    }
}

/* === bilinear: needs values, code at === */
typedef struct {
    uint16_t first, second;
    uint32_t share; /* of the second; bits of a float */
} blend_t;

static uint32_t mixed(uint32_t p, uint32_t q, uint32_t share) {
    return plus(p, times(share, plus(q, p ^ 0x80000000u)));
}

static uint32_t mixed_row(const tensor_t *from, uint32_t c, uint32_t row, const blend_t *column) {
    const uint32_t p = float_of(code_at(from, c, row * from->width + column->first));
    const uint32_t q = float_of(code_at(from, c, row * from->width + column->second));
    return mixed(p, q, column->share);
}

static void bilinear(const tensor_t *from, const result_t *results, uint32_t count, const blend_t *rows,
                     const blend_t *columns) {
    const tensor_t *to = results[0].to;
    for (uint32_t c = 0u; c < to->channels; c++) {
        for (uint32_t y = 0u; y < to->height; y++) {
            for (uint32_t x = 0u; x < to->width; x++) {
                const uint32_t above = mixed_row(from, c, rows[y].first, &columns[x]);
                const uint32_t below = mixed_row(from, c, rows[y].second, &columns[x]);
                for (uint32_t i = 0u; i < count; i++) {
                    put_value(&results[i], c, y * to->width + x, mixed(above, below, rows[y].share));
                }
            }
        }
    }
}
